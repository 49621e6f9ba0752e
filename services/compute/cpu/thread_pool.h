// A fixed set of threads that share out the tiles of one operation at a time.
//
// The caller is worker 0 and takes part; threads() - 1 persistent threads join in. Each worker has
// a run of consecutive tiles (consecutive memory, which prefetching likes) that it takes one by one
// from an atomic counter; when its own run is used up it takes from the others'. So a slow or
// preempted worker delays only the tile it holds. A worker that was not scheduled in time simply
// misses the job: the caller waits for those that joined, not for those that might have. That keeps
// the pool usable when other processes take the cores.
//
// Between jobs a worker polls for `spin_us` (first busily, then yielding the processor at every
// poll), then sleeps on a futex. Waking a sleeper costs tens of microseconds, so the spin time
// should cover the gap between two operations of a step. No allocation and no lock per job.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace strata::compute {

class ThreadPool {
 public:
  using TileFn = absl::FunctionRef<void(int64_t tile, int worker)>;

  // `threads` >= 1 counts the caller. Workers run on the processors of `mask` (nullptr: anywhere).
  ThreadPool(int threads, int spin_us, const cpu_set_t* mask);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls fn(tile, worker) once for every tile of [0, tiles), worker in [0, threads()), and returns
  // when all calls have returned. One caller at a time; fn must not call ParallelFor.
  void ParallelFor(int64_t tiles, TileFn fn);

 private:
  void WorkerLoop(int worker);
  void RunTiles(int worker);

  // A worker's run of tiles; a cache line each, because others write to it only at the end.
  struct alignas(64) Run {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  // The job; written by the caller while no worker is inside (state_ says so).
  const TileFn* job_ = nullptr;
  std::unique_ptr<Run[]> runs_;

  const int threads_;
  const int spin_us_;
  // kOpen while workers may join the job, plus the number of workers inside it.
  alignas(64) std::atomic<uint32_t> state_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};  // number of jobs started; futex of sleepers
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace strata::compute
