// A wait with a deadline that other threads can end: the condition variable of coroutines.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

namespace strata::gateway {

// Shared, because notifiers on other threads may outlive the waiting coroutine. They must not
// outlive the executor's context.
class Wake : public std::enable_shared_from_this<Wake> {
 public:
  using Clock = std::chrono::steady_clock;

  static std::shared_ptr<Wake> Create(const boost::asio::any_io_executor& executor);
  ~Wake();

  // Any thread. A notification while nobody waits ends the next wait at once.
  void Notify();
  // On the executor, one waiter at a time. Returns at the deadline or after Notify.
  boost::asio::awaitable<void> WaitUntil(Clock::time_point deadline);

 private:
  struct Timer;
  explicit Wake(const boost::asio::any_io_executor& executor);
  std::unique_ptr<Timer> timer_;
  std::atomic<bool> notified_ = false;
};

}  // namespace strata::gateway
