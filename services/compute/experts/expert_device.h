// Memory that experts can be computed from, and the way into it: what a GPU back end adds to
// DeviceTier. The simulated one is memory of this process behind a link of a chosen speed, so that
// everything above it runs, and is tested, without a GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "common/base/memory_map.h"

#include "absl/status/statusor.h"

namespace strata::compute {

class ExpertDevice {
 public:
  virtual ~ExpertDevice() = default;
  // Addresses that the back end's operations take; does not move.
  virtual std::span<std::byte> memory() = 0;
  // Copies into memory() and returns when the bytes are there. One thread at a time, any thread,
  // beside computing with other bytes of memory().
  virtual void Copy(std::byte* to, std::span<const std::byte> from) = 0;
};

class SimulatedDevice final : public ExpertDevice {
 public:
  // `copy_gbs`: 1e9 bytes per second that the link carries.
  static absl::StatusOr<std::unique_ptr<SimulatedDevice>> Create(size_t bytes, double copy_gbs);
  std::span<std::byte> memory() override { return {memory_.data(), memory_.size()}; }
  void Copy(std::byte* to, std::span<const std::byte> from) override;

 private:
  SimulatedDevice(MemoryMap memory, double copy_gbs)
      : memory_(std::move(memory)), copy_gbs_(copy_gbs) {}

  MemoryMap memory_;
  const double copy_gbs_;
};

}  // namespace strata::compute
