// The tiers without the bytes: which experts would be where, with the policies that the expert
// store itself uses (common/policy), and what the misses cost.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/policy/eviction_policy.h"
#include "common/policy/hotness.h"
#include "common/trace/routing_trace.h"

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace strata::cli {

// A tier of slots for experts.
class SimulatedTier {
 public:
  // InvalidArgument for an unknown policy.
  static absl::StatusOr<SimulatedTier> Create(const policy::Shape& shape, std::string_view policy);

  bool Contains(uint32_t expert) const { return resident_[expert]; }
  // Whether it would find a free slot.
  bool HasRoomFor(uint32_t expert) const { return free_[shape_.size_class[expert]] > 0; }
  void Note(uint32_t expert, uint32_t tokens, policy::Phase phase);
  double Value(uint32_t expert) const { return hotness_->Value(expert); }
  // Makes room if need be by giving up something that `may_go` accepts, or else anything; returns
  // what was given up. False in `*done`: no slot can be had (the class has none).
  std::optional<uint32_t> Load(uint32_t expert, std::optional<policy::Phase> phase,
                               absl::FunctionRef<bool(uint32_t)> may_go, bool* done);
  // What Load would give up; nullopt if there is room or nothing that may go.
  std::optional<uint32_t> Victim(uint32_t expert, absl::FunctionRef<bool(uint32_t)> may_go);
  void Remove(uint32_t expert);
  // As the store does at its start: an equal part of every layer, as far as there is room.
  void Fill();

 private:
  SimulatedTier() = default;
  policy::Shape shape_;
  std::unique_ptr<policy::Hotness> hotness_;
  std::unique_ptr<policy::EvictionPolicy> policy_;
  std::vector<bool> resident_;
  std::vector<uint32_t> free_;  // slots, by size class
};

struct TierCounts {
  uint64_t device = 0;  // experts found in device memory
  uint64_t ram = 0;
  uint64_t drive = 0;
  uint64_t all() const { return device + ram + drive; }
};

// RAM alone, or a device tier above it. With both, RAM keeps what the device does not hold.
class TierSimulation {
 public:
  // Experts move to the device after a step has used them: the more used ones first, as long as
  // they are worth more than what they replace, at most so many a layer of a step.
  static constexpr uint32_t kUploadsPerLayer = 2;

  // `device` with no slots: no device tier.
  static absl::StatusOr<TierSimulation> Create(const policy::Shape& ram,
                                               const policy::Shape& device,
                                               std::string_view policy);
  void Fill() { ram_.Fill(); }
  // One layer of one step; `uses` hold numbers of experts over all layers.
  TierCounts Run(bool prompt, std::span<const trace::Use> uses);

 private:
  TierSimulation(SimulatedTier ram, SimulatedTier device, bool has_device)
      : ram_(std::move(ram)), device_(std::move(device)), has_device_(has_device) {}
  void Upload();

  SimulatedTier ram_;
  SimulatedTier device_;
  bool has_device_;
  std::vector<uint32_t> batch_;                          // experts of the step that are not done
  std::vector<std::pair<double, uint32_t>> for_device_;  // value, expert
};

// What a machine can do, in bytes and seconds.
struct SimulatedMachine {
  double ram_rate = 60e9;  // reads of experts and dense weights from RAM
  double device_rate = 0;  // from device memory; 0: there is none, dense weights lie in RAM
  double drive_rate = 6e9;
  double drive_latency = 100e-6;  // of a layer's first miss
};

// Time of decoding one token, layer by layer: hits are computed while misses load, misses after
// that.
class TokenClock {
 public:
  TokenClock(const SimulatedMachine& machine, double expert_bytes, double dense_bytes_per_layer)
      : machine_(machine), expert_bytes_(expert_bytes), dense_(dense_bytes_per_layer) {}

  void Layer(const TierCounts& counts);
  void EndToken() { ++tokens_; }

  uint64_t tokens() const { return tokens_; }
  double seconds_per_token() const { return seconds_ / static_cast<double>(tokens_); }
  double stall_per_token() const { return stall_ / static_cast<double>(tokens_); }
  double drive_bytes_per_token() const { return drive_bytes_ / static_cast<double>(tokens_); }
  // With drive and memory busy all the time, side by side: no order of work is faster.
  double least_seconds_per_token() const;

 private:
  const SimulatedMachine machine_;
  const double expert_bytes_;
  const double dense_;
  uint64_t tokens_ = 0;
  double seconds_ = 0;
  double stall_ = 0;
  double drive_bytes_ = 0;
};

}  // namespace strata::cli
