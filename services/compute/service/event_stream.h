// Turns callbacks of the step thread into the messages of one server stream. Includes gRPC headers.
//
// gRPC allows one write in flight; the step thread never waits. So messages queue here: whoever
// finds no write in flight starts one, and OnWriteDone starts the next. A reader that takes nothing
// makes the queue grow, hence its limit: beyond it the request is cancelled.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace strata::compute {

template <typename Message>
class EventStream final : public grpc::ServerWriteReactor<Message> {
 public:
  static constexpr size_t kMaxQueued = 1 << 16;

  // `cancel` is called at most once, when the client goes away or does not read.
  explicit EventStream(std::function<void()> cancel) : cancel_(std::move(cancel)) {}

  // gRPC and the request's sink share the object; each drops its share when it is done.
  void Share(std::shared_ptr<EventStream> self) { self_ = std::move(self); }

  void Push(Message message) {
    std::function<void()> cancel;
    {
      const std::lock_guard lock(mutex_);
      if (final_) return;
      if (queue_.size() >= kMaxQueued) {
        cancel = std::exchange(cancel_, nullptr);
      } else {
        queue_.push_back(std::move(message));
        WriteNext();
      }
    }
    if (cancel) cancel();
  }

  // Ends the stream with `status` after everything queued.
  void Close(grpc::Status status) {
    const std::lock_guard lock(mutex_);
    if (final_) return;
    final_ = std::move(status);
    WriteNext();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    queue_.pop_front();
    if (!ok) queue_.clear();  // the client is gone; OnCancel follows
    WriteNext();
  }

  void OnCancel() override {
    std::function<void()> cancel;
    {
      const std::lock_guard lock(mutex_);
      cancel = std::exchange(cancel_, nullptr);
    }
    if (cancel) cancel();
  }

  void OnDone() override {
    // Maybe the last share: nothing of the object may be touched afterwards.
    const std::shared_ptr<EventStream> last = std::move(self_);
  }

 private:
  void WriteNext() {  // mutex_ held
    if (writing_ || finished_) return;
    if (!queue_.empty()) {
      writing_ = true;
      this->StartWrite(&queue_.front());
    } else if (final_) {
      finished_ = true;
      this->Finish(*final_);
    }
  }

  std::mutex mutex_;
  std::deque<Message> queue_;  // the front is being written while writing_
  std::optional<grpc::Status> final_;
  std::function<void()> cancel_;
  bool writing_ = false;
  bool finished_ = false;
  std::shared_ptr<EventStream> self_;
};

}  // namespace strata::compute
