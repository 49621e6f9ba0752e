// Waiting in tests for what another thread or process does.
#pragma once

#include <chrono>
#include <thread>

namespace strata {

// True as soon as `condition()` is. The patience is for a machine on which a hundred others work,
// with a sanitizer; a test that passes does not wait for it.
template <typename Condition>
bool Eventually(const Condition& condition,
                std::chrono::milliseconds pause = std::chrono::milliseconds(1),
                std::chrono::milliseconds patience = std::chrono::minutes(2)) {
  const auto give_up = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

}  // namespace strata
