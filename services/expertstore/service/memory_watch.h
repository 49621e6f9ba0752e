// Keeps the expert arena inside what the machine can spare: asks a few times a second how much
// memory is free, in the machine and in the control group, and lets the arena shrink before others
// run out of it, or grow again when there is room. Somebody may set a lower limit at run time.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "common/base/periodic_thread.h"
#include "services/expertstore/plane/data_plane.h"

#include "absl/status/status.h"

namespace strata::expertstore {

struct MemoryState {
  uint64_t free = 0;     // AvailableMemory
  uint64_t limit = 0;    // that the arena has now
  uint64_t ceiling = 0;  // that it may have at most
  uint64_t least = 0;    // that it needs
  uint64_t reserve = 0;  // that others should find free
};

// The limit to set. Below the reserve the arena gives what is missing; it grows only into what lies
// above twice the reserve, so that it does not swing.
uint64_t NextLimit(const MemoryState& state);

class MemoryWatch {
 public:
  // `plane` must be running and outlive this. `free_memory` is AvailableMemory but in tests.
  MemoryWatch(DataPlane& plane, uint64_t reserve, std::function<uint64_t()> free_memory);
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  // At most so much from now on (0: as planned at the start); waits until the arena has followed,
  // at most five seconds. ResourceExhausted if it is too little. Thread-safe.
  absl::Status SetCeiling(uint64_t bytes);

 private:
  void LookOnce();

  DataPlane& plane_;
  const uint64_t reserve_;
  const std::function<uint64_t()> free_memory_;
  std::mutex mutex_;
  uint64_t ceiling_;  // guarded by mutex_
  PeriodicThread thread_;
};

}  // namespace strata::expertstore
