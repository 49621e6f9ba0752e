#include "tests/simt/executor.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/base/status.h"

namespace strata::simt {
namespace {

// Kernels keep little on the stack; the sanitizers' red zones need room of their own.
constexpr size_t kStackBytes = size_t{64} << 10;

Executor* running = nullptr;

std::string At(const SourcePlace& where) { return absl::StrCat(where.file, ":", where.line); }

// The function's name tells instances of a template apart.
bool SamePlace(const SourcePlace& a, const SourcePlace& b) {
  return a.line == b.line && std::strcmp(a.file, b.file) == 0 &&
         std::strcmp(a.function, b.function) == 0;
}

}  // namespace

struct Executor::Thread {
  explicit Thread(unsigned number) : index(number), fiber(kStackBytes) {}

  unsigned index;
  Fiber fiber;
  const Barrier* waits_for = nullptr;  // null: can run
  uint64_t generation = 0;             // of waits_for when it began to wait
  SourcePlace where;

  bool CanRun() const {
    return !fiber.finished() && (waits_for == nullptr || waits_for->generation != generation);
  }
};

Executor::Executor(unsigned warp_size) : warp_size_(warp_size) {
  if (warp_size == 0 || warp_size > kMaxWarp) abort();
}

Executor::~Executor() = default;

Executor& Executor::Running() {
  if (running == nullptr) {
    fprintf(stderr, "a device function was called outside a kernel\n");
    abort();
  }
  return *running;
}

unsigned Executor::thread() const { return running_thread_->index; }

std::string Executor::Run(const Grid& grid, const std::function<void()>& body) {
  if (grid.threads == 0 || grid.threads > kMaxThreads || grid.threads % warp_size_ != 0) {
    return absl::StrCat("blocks of ", grid.threads, " threads: must be a multiple of the warp (",
                        warp_size_, ") up to ", kMaxThreads);
  }
  grid_ = grid;
  body_ = &body;
  error_.clear();
  while (threads_.size() < grid.threads) {
    threads_.push_back(std::make_unique<Thread>(static_cast<unsigned>(threads_.size())));
  }
  // Exactly as large as asked for: the address sanitizer sees the first byte beyond.
  shared_ = std::make_unique<std::byte[]>(grid.shared_bytes);
  running = this;
  for (block_y_ = 0; block_y_ < grid.blocks_y && error_.empty(); ++block_y_) {
    for (block_x_ = 0; block_x_ < grid.blocks_x && error_.empty(); ++block_x_) RunBlock();
  }
  running = nullptr;
  return error_;
}

void Executor::RunBlock() {
  if (grid_.shared_bytes > 0) std::memset(shared_.get(), 0xff, grid_.shared_bytes);
  block_barrier_ = {.expected = grid_.threads};
  warps_.assign(grid_.threads / warp_size_, Warp{.barrier = {.expected = warp_size_}, .slots = {}});
  for (unsigned i = 0; i < grid_.threads; ++i) {
    threads_[i]->waits_for = nullptr;
    threads_[i]->fiber.Start(&ThreadMain, this);
  }
  bool all_finished = false;
  while (!all_finished && error_.empty()) {
    bool progress = false;
    all_finished = true;
    for (unsigned n = 0; n < grid_.threads && error_.empty(); ++n) {
      Thread& thread = *threads_[schedule_ == Schedule::kForward ? n : grid_.threads - 1 - n];
      if (thread.CanRun()) {
        running_thread_ = &thread;
        thread.fiber.Resume();
        progress = true;
      }
      all_finished = all_finished && thread.fiber.finished();
    }
    if (!progress && !all_finished) Fail(DescribeWaiting());
  }
}

void Executor::ThreadMain(void* executor) { (*static_cast<Executor*>(executor)->body_)(); }

void Executor::Fail(const std::string& message) {
  if (error_.empty()) {
    error_ = absl::StrCat("block (", block_x_, ", ", block_y_, "): ", message);
  }
}

std::string Executor::DescribeWaiting() const {
  constexpr int kListed = 4;
  unsigned finished = 0;
  int listed = 0;
  std::string waiting;
  for (unsigned i = 0; i < grid_.threads; ++i) {
    const Thread& thread = *threads_[i];
    if (thread.fiber.finished()) {
      ++finished;
    } else if (listed++ < kListed) {
      absl::StrAppend(&waiting, listed > 1 ? ", " : "", "thread ", i, " at ", At(thread.where));
    }
  }
  if (listed > kListed) absl::StrAppend(&waiting, " and ", listed - kListed, " more");
  return absl::StrCat("threads wait forever (", waiting, "); ", finished, " of ", grid_.threads,
                      " threads have finished");
}

// Counts the running thread in and, unless it is the last one, waits for the others.
void Executor::Arrive(Barrier& barrier, SourcePlace where) {
  Thread& thread = *running_thread_;
  thread.where = where;
  if (barrier.arrived == 0) {
    barrier.where = where;
    barrier.first_thread = thread.index;
  } else if (!SamePlace(barrier.where, where)) {
    Fail(absl::StrCat("divergent: thread ", barrier.first_thread, " waits at ", At(barrier.where),
                      ", thread ", thread.index, " at ", At(where)));
    Fiber::Yield();  // for good: Run gives up
  }
  if (++barrier.arrived == barrier.expected) {
    barrier.arrived = 0;
    ++barrier.generation;
    return;
  }
  thread.waits_for = &barrier;
  thread.generation = barrier.generation;
  Fiber::Yield();
  thread.waits_for = nullptr;
}

void Executor::SyncBlock(SourcePlace where) { Arrive(block_barrier_, where); }

const std::array<uint64_t, Executor::kMaxWarp>& Executor::Exchange(uint64_t value,
                                                                   SourcePlace where) {
  const unsigned index = running_thread_->index;
  Warp& warp = warps_[index / warp_size_];
  // Nobody can be two exchanges ahead of a lane that has not read yet, so two sets are enough.
  auto& slots = warp.slots[warp.barrier.generation % 2];
  slots[index % warp_size_] = value;
  Arrive(warp.barrier, where);
  return slots;
}

}  // namespace strata::simt
