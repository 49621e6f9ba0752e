#include "services/expertstore/service/memory_watch.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"

namespace strata::expertstore {
namespace {

// The arena is to give memory back within a second.
constexpr auto kInterval = std::chrono::milliseconds(200);
constexpr auto kSettleLimit = std::chrono::seconds(5);

}  // namespace

uint64_t NextLimit(const MemoryState& state) {
  const uint64_t least = std::min(state.least, state.ceiling);
  if (state.free < state.reserve) {
    const uint64_t missing = state.reserve - state.free;
    const uint64_t less = state.limit > missing ? state.limit - missing : 0;
    return std::clamp(less, least, state.ceiling);
  }
  if (state.limit >= state.ceiling) return state.ceiling;
  const uint64_t spare = state.free > 2 * state.reserve ? state.free - 2 * state.reserve : 0;
  // Not for a few slots.
  if (spare < std::min(state.reserve / 2, state.ceiling - state.limit)) return state.limit;
  return std::min(state.ceiling, state.limit + spare);
}

MemoryWatch::MemoryWatch(DataPlane& plane, uint64_t reserve, std::function<uint64_t()> free_memory)
    : plane_(plane),
      reserve_(reserve),
      free_memory_(std::move(free_memory)),
      ceiling_(plane.plan().bytes),
      thread_(kInterval, [this] { LookOnce(); }) {}

absl::Status MemoryWatch::SetCeiling(uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const uint64_t most = plane_.plan().bytes;
    const uint64_t ceiling = bytes == 0 ? most : std::min(bytes, most);
    STRATA_RETURN_IF_ERROR(plane_.SetMemoryLimit(ceiling));
    ceiling_ = ceiling;
  }
  const auto give_up = std::chrono::steady_clock::now() + kSettleLimit;
  while (!plane_.Status().settled && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return absl::OkStatus();
}

void MemoryWatch::LookOnce() {
  const std::lock_guard lock(mutex_);
  const DataPlaneStatus status = plane_.Status();
  if (!status.settled) return;  // what is free now will be more in a moment
  MemoryState state;
  state.free = free_memory_();
  state.limit = status.limit_bytes;
  state.ceiling = ceiling_;
  state.least = plane_.plan().least_bytes;
  state.reserve = reserve_;
  const uint64_t limit = NextLimit(state);
  if (limit == state.limit) return;
  LogInfo(state.free, " bytes of memory are free, ", reserve_, " are to be left to others");
  if (const absl::Status set = plane_.SetMemoryLimit(limit); !set.ok()) LogWarning(set.message());
}

}  // namespace strata::expertstore
