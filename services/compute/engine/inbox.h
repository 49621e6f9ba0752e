// Messages to the step loop from other threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "services/compute/engine/sequence.h"

namespace strata::compute {

struct SubmitMessage {
  std::unique_ptr<Sequence> sequence;
};
struct CancelMessage {
  SequenceId id = 0;
};
// One block of saved state for a sequence, in order.
struct RestoredBlockMessage {
  SequenceId id = 0;
  std::vector<std::byte> bytes;
};
struct RestoreDoneMessage {
  SequenceId id = 0;
};
struct StopMessage {};

using Message = std::variant<SubmitMessage, CancelMessage, RestoredBlockMessage, RestoreDoneMessage,
                             StopMessage>;

// Many writers, one reader.
class Inbox {
 public:
  void Post(Message message) {
    {
      const std::lock_guard lock(mutex_);
      messages_.push_back(std::move(message));
    }
    arrived_.notify_one();
  }

  // All messages so far; with `wait`, blocks until there is one.
  std::vector<Message> Take(bool wait) {
    std::unique_lock lock(mutex_);
    if (wait) arrived_.wait(lock, [&] { return !messages_.empty(); });
    return std::exchange(messages_, {});
  }
  // The same, but waits `longest` at most and may return none.
  std::vector<Message> TakeWithin(std::chrono::nanoseconds longest) {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, longest, [&] { return !messages_.empty(); });
    return std::exchange(messages_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Message> messages_;
};

}  // namespace strata::compute
