// A thread that does something again and again until its owner goes away.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace strata {

// Declare it last in its class: the destructor waits for a call under way, which may use the other
// members.
class PeriodicThread {
 public:
  // Calls `work` each time that `interval` has passed since its last end; the first time after one.
  PeriodicThread(std::chrono::milliseconds interval, std::function<void()> work)
      : interval_(interval), work_(std::move(work)), thread_([this] { Run(); }) {}
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;
  ~PeriodicThread() { Stop(); }

  // Afterwards `work` neither runs nor will run. Not from within `work`.
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    stop_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, interval_, [this] { return stopping_; })) {
      lock.unlock();
      work_();
      lock.lock();
    }
  }

  const std::chrono::milliseconds interval_;
  const std::function<void()> work_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // last: it uses the others
};

}  // namespace strata
