#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "common/base/status.h"
#include "services/compute/experts/expert_device.h"

namespace strata::compute {

absl::StatusOr<std::unique_ptr<SimulatedDevice>> SimulatedDevice::Create(size_t bytes,
                                                                         double copy_gbs) {
  if (!(copy_gbs > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("device_tier.copy_gbs = ", copy_gbs, " is not a rate"));
  }
  STRATA_ASSIGN_OR_RETURN(MemoryMap memory, MemoryMap::Anonymous(bytes, /*huge=*/true));
  return std::unique_ptr<SimulatedDevice>(new SimulatedDevice(std::move(memory), copy_gbs));
}

void SimulatedDevice::Copy(std::byte* to, std::span<const std::byte> from) {
  // In pieces, so that the bytes arrive over the time that they take, as over a bus.
  constexpr size_t kPiece = 256 << 10;
  auto due = std::chrono::steady_clock::now();
  for (size_t at = 0; at < from.size(); at += kPiece) {
    const size_t bytes = std::min(kPiece, from.size() - at);
    std::memcpy(to + at, from.data() + at, bytes);
    due += std::chrono::nanoseconds(
        static_cast<int64_t>(static_cast<double>(bytes) / copy_gbs_));  // 1 GB/s = 1 byte/ns
    std::this_thread::sleep_until(due);
  }
}

}  // namespace strata::compute
