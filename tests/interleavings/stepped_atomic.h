// Stands in for std::atomic in common/shm: every access that is not relaxed is a point at which the
// explorer may let another participant go on. Relaxed ones are a participant's looks at words that
// only it writes, and statistics.
#pragma once

#include <atomic>

namespace strata::interleavings {

// Defined by the explorer.
void Step();

}  // namespace strata::interleavings

namespace strata::shm {

template <typename T>
class Atomic {
 public:
  static constexpr bool is_always_lock_free = std::atomic<T>::is_always_lock_free;

  Atomic() = default;
  Atomic(T value) : value_(value) {}  // NOLINT(google-explicit-constructor): as std::atomic
  T load(std::memory_order order = std::memory_order_seq_cst) const {
    Before(order);
    return value_.load(order);
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) {
    Before(order);
    value_.store(value, order);
  }
  T fetch_add(T value, std::memory_order order) {
    Before(order);
    return value_.fetch_add(value, order);
  }
  T fetch_sub(T value, std::memory_order order) {
    Before(order);
    return value_.fetch_sub(value, order);
  }

 private:
  static void Before(std::memory_order order) {
    if (order != std::memory_order_relaxed) interleavings::Step();
  }
  std::atomic<T> value_{};
};

}  // namespace strata::shm
