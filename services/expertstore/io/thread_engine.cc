#include "services/expertstore/io/thread_engine.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/base/status.h"

namespace strata::expertstore {

absl::StatusOr<std::unique_ptr<ThreadEngine>> ThreadEngine::Create(const ModelFiles& files,
                                                                   uint32_t depth) {
  constexpr uint32_t kMaxThreads = 32;
  auto engine = std::unique_ptr<ThreadEngine>(new ThreadEngine(files, depth));
  engine->done_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!engine->done_fd_.valid()) return ErrnoStatus(errno, "cannot create an eventfd");
  for (uint32_t i = 0; i < std::min(depth, kMaxThreads); ++i) {
    engine->threads_.emplace_back([raw = engine.get()] { raw->Work(); });
  }
  return engine;
}

ThreadEngine::~ThreadEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadEngine::Queue(const ReadOp& op) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(op);
  }
  work_.notify_one();
}

size_t ThreadEngine::Reap(std::span<ReadResult> results) {
  const std::lock_guard lock(mutex_);
  const size_t count = std::min(results.size(), done_.size());
  std::copy_n(done_.begin(), count, results.begin());
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
  if (done_.empty()) {
    uint64_t rings;
    [[maybe_unused]] const ssize_t got = read(done_fd_.get(), &rings, sizeof(rings));
  }
  return count;
}

void ThreadEngine::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const ReadOp op = queue_.front();
    queue_.pop_front();
    lock.unlock();
    const int fd = op.direct ? files_.direct_fd(op.file) : files_.buffered_fd(op.file);
    const ssize_t got = pread(fd, op.dest, op.bytes, static_cast<off_t>(op.offset));
    const int64_t result = got < 0 ? -errno : got;
    lock.lock();
    done_.push_back({op.tag, result});
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t wrote = write(done_fd_.get(), &one, sizeof(one));
  }
}

}  // namespace strata::expertstore
