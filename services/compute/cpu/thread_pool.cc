#include "services/compute/cpu/thread_pool.h"

#include <pthread.h>

#include <chrono>

namespace strata::compute {
namespace {

constexpr uint32_t kOpen = 1u << 31;
// Polls before a waiting thread starts to offer its processor to others: about 20 us.
constexpr int kBusyPolls = 500;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Polls `ready` for about `spin_us`; returns whether it came true.
template <typename Ready>
bool Spin(int spin_us, Ready ready) {
  for (int i = 0; i < kBusyPolls; ++i) {
    if (ready()) return true;
    Pause();
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us);
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      Pause();
    }
    sched_yield();  // free if nobody else wants the processor
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

}  // namespace

ThreadPool::ThreadPool(int threads, int spin_us, const cpu_set_t* mask)
    : runs_(std::make_unique<Run[]>(threads)), threads_(threads), spin_us_(spin_us) {
  workers_.reserve(threads - 1);
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { WorkerLoop(worker); });
    pthread_setname_np(workers_.back().native_handle(), "cpu-worker");
    // A refused mask (a processor went offline) only costs placement.
    if (mask != nullptr) {
      pthread_setaffinity_np(workers_.back().native_handle(), sizeof(*mask), mask);
    }
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunTiles(int worker) {
  const TileFn& fn = *job_;
  for (int i = 0; i < threads_; ++i) {
    Run& run = runs_[(worker + i) % threads_];
    for (int64_t tile; (tile = run.next.fetch_add(1, std::memory_order_relaxed)) < run.end;) {
      fn(tile, worker);
    }
  }
}

void ThreadPool::ParallelFor(int64_t tiles, TileFn fn) {
  if (threads_ == 1 || tiles <= 1) {
    for (int64_t tile = 0; tile < tiles; ++tile) fn(tile, 0);
    return;
  }
  job_ = &fn;
  for (int i = 0; i < threads_; ++i) {
    runs_[i].next.store(tiles * i / threads_, std::memory_order_relaxed);
    runs_[i].end = tiles * (i + 1) / threads_;
  }
  state_.store(kOpen, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();  // no system call unless somebody sleeps
  RunTiles(0);

  // Close the job, then wait for those inside.
  uint32_t state = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  if (state == 0) return;
  if (Spin(spin_us_, [this] { return state_.load(std::memory_order_acquire) == 0; })) return;
  while ((state = state_.load(std::memory_order_acquire)) != 0) state_.wait(state);
}

void ThreadPool::WorkerLoop(int worker) {
  uint32_t seen = 0;
  while (true) {
    const auto changed = [&] { return generation_.load(std::memory_order_acquire) != seen; };
    if (!Spin(spin_us_, changed)) generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    // Join if the job is still open. The increment happens before anything of the job is read, and
    // the caller changes the job only when nobody is inside.
    uint32_t state = state_.load(std::memory_order_relaxed);
    while ((state & kOpen) != 0 &&
           !state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel,
                                         std::memory_order_relaxed)) {
    }
    if ((state & kOpen) == 0) continue;
    RunTiles(worker);
    if (state_.fetch_sub(1, std::memory_order_acq_rel) == 1) state_.notify_one();
  }
}

}  // namespace strata::compute
