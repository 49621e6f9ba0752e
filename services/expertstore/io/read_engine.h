// The lowest layer of reading: hands single reads to the operating system (or to a test's fake) and
// collects their ends. No retries, no priorities, no knowledge of experts: see ReadQueue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/status.h"

namespace strata::expertstore {

struct ReadOp {
  uint64_t tag = 0;  // given back in the result
  uint32_t file = 0;
  bool direct = false;  // past the page cache: offset, bytes and dest are multiples of 4 KiB
  uint64_t offset = 0;
  uint32_t bytes = 0;
  std::byte* dest = nullptr;  // stays valid until the result is taken
};

struct ReadResult {
  uint64_t tag = 0;
  int64_t result = 0;  // bytes read (0 = end of file), or a negative errno
};

// One thread.
class ReadEngine {
 public:
  virtual ~ReadEngine() = default;

  // Reads that may be in flight together.
  virtual uint32_t depth() const = 0;
  // Queues a read; at most depth() may be without a result. Flush() starts what was queued.
  virtual void Queue(const ReadOp& op) = 0;
  virtual void Flush() = 0;
  // Takes up to results.size() finished reads, without waiting.
  virtual size_t Reap(std::span<ReadResult> results) = 0;
  // The pages of the arena are about to change: from now on nothing keeps hold of them beside the
  // reads in flight, which may be waited for. Costs some CPU time for each later read.
  virtual void ReleaseBuffers() {}
  // Readable (poll, epoll) while there is something to reap.
  virtual int fd() const = 0;
  // "io_uring" and the like, for the log and the status.
  virtual const char* name() const = 0;
};

}  // namespace strata::expertstore
