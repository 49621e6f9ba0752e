// Reads with pread(2) on a few threads, for kernels and containers that refuse io_uring.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "common/base/unique_fd.h"
#include "services/expertstore/io/model_files.h"
#include "services/expertstore/io/read_engine.h"

#include "absl/status/statusor.h"

namespace strata::expertstore {

class ThreadEngine : public ReadEngine {
 public:
  // `files` must outlive the engine. One thread per read in flight, at most 32.
  static absl::StatusOr<std::unique_ptr<ThreadEngine>> Create(const ModelFiles& files,
                                                              uint32_t depth);
  ~ThreadEngine() override;
  ThreadEngine(const ThreadEngine&) = delete;
  ThreadEngine& operator=(const ThreadEngine&) = delete;

  uint32_t depth() const override { return depth_; }
  void Queue(const ReadOp& op) override;
  void Flush() override {}
  size_t Reap(std::span<ReadResult> results) override;
  int fd() const override { return done_fd_.get(); }
  const char* name() const override { return "threads"; }

 private:
  ThreadEngine(const ModelFiles& files, uint32_t depth) : files_(files), depth_(depth) {}
  void Work();

  const ModelFiles& files_;
  const uint32_t depth_;
  UniqueFd done_fd_;  // eventfd: readable while done_ is not empty
  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<ReadOp> queue_;     // guarded by mutex_
  std::deque<ReadResult> done_;  // guarded by mutex_
  bool stopping_ = false;        // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace strata::expertstore
