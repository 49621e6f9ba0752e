#include "cli/simulate_tiers.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "common/base/status.h"
#include "common/policy/make_policy.h"

namespace strata::cli {

using policy::Phase;

absl::StatusOr<SimulatedTier> SimulatedTier::Create(const policy::Shape& shape,
                                                    std::string_view policy) {
  SimulatedTier tier;
  tier.shape_ = shape;
  tier.hotness_ = std::make_unique<policy::Hotness>(shape.experts());
  STRATA_ASSIGN_OR_RETURN(tier.policy_, policy::Make(policy, shape, *tier.hotness_));
  tier.resident_.assign(shape.experts(), false);
  tier.free_ = shape.class_slots;
  return tier;
}

void SimulatedTier::Note(uint32_t expert, uint32_t tokens, Phase phase) {
  hotness_->Use(expert, tokens, phase);
  policy_->Use(expert, tokens, phase);
}

std::optional<uint32_t> SimulatedTier::Victim(uint32_t expert,
                                              absl::FunctionRef<bool(uint32_t)> may_go) {
  if (HasRoomFor(expert)) return std::nullopt;
  return policy_->Victim(expert, Phase::kDecode, may_go);
}

std::optional<uint32_t> SimulatedTier::Load(uint32_t expert, std::optional<Phase> phase,
                                            absl::FunctionRef<bool(uint32_t)> may_go, bool* done) {
  std::optional<uint32_t> victim;
  if (!HasRoomFor(expert)) {
    const Phase why = phase.value_or(Phase::kPrompt);
    victim = policy_->Victim(expert, why, may_go);
    if (!victim) victim = policy_->Victim(expert, why, [](uint32_t) { return true; });
    if (!victim) {
      *done = false;
      return std::nullopt;
    }
    Remove(*victim);
  }
  *done = true;
  resident_[expert] = true;
  --free_[shape_.size_class[expert]];
  policy_->Insert(expert, phase);
  return victim;
}

void SimulatedTier::Remove(uint32_t expert) {
  policy_->Erase(expert);
  resident_[expert] = false;
  ++free_[shape_.size_class[expert]];
}

void SimulatedTier::Fill() {
  std::vector<uint32_t> order(shape_.experts());
  std::vector<uint32_t> index(shape_.experts());  // in its layer
  for (uint32_t e = 1; e < order.size(); ++e) {
    order[e] = e;
    index[e] = shape_.layer[e] == shape_.layer[e - 1] ? index[e - 1] + 1 : 0;
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return index[a] < index[b]; });
  for (const uint32_t e : order) {
    if (resident_[e] || !HasRoomFor(e)) continue;
    bool done = false;
    Load(
        e, std::nullopt, [](uint32_t) { return false; }, &done);
  }
}

absl::StatusOr<TierSimulation> TierSimulation::Create(const policy::Shape& ram,
                                                      const policy::Shape& device,
                                                      std::string_view policy) {
  STRATA_ASSIGN_OR_RETURN(SimulatedTier ram_tier, SimulatedTier::Create(ram, policy));
  STRATA_ASSIGN_OR_RETURN(SimulatedTier device_tier, SimulatedTier::Create(device, policy));
  const bool has_device = std::any_of(device.class_slots.begin(), device.class_slots.end(),
                                      [](uint32_t slots) { return slots > 0; });
  return TierSimulation(std::move(ram_tier), std::move(device_tier), has_device);
}

TierCounts TierSimulation::Run(bool prompt, std::span<const trace::Use> uses) {
  const Phase phase = prompt ? Phase::kPrompt : Phase::kDecode;
  TierCounts counts;
  std::vector<uint32_t> misses;
  batch_.clear();
  for (const trace::Use& use : uses) {
    ram_.Note(use.expert, use.tokens, phase);
    if (has_device_) device_.Note(use.expert, use.tokens, phase);
  }
  for (const trace::Use& use : uses) {
    if (has_device_ && device_.Contains(use.expert)) {
      ++counts.device;
    } else if (ram_.Contains(use.expert)) {
      ++counts.ram;
      batch_.push_back(use.expert);
    } else {
      ++counts.drive;
      misses.push_back(use.expert);
      batch_.push_back(use.expert);
    }
  }
  // What the step uses stays until it is computed: hits are, at the latest, when nothing else is
  // left to give up; of the misses those that came before.
  const auto not_used_now = [this](uint32_t e) {
    return std::find(batch_.begin(), batch_.end(), e) == batch_.end();
  };
  for (const uint32_t expert : misses) {
    bool done = false;
    ram_.Load(expert, phase, not_used_now, &done);
  }
  if (has_device_ && !prompt) Upload();
  return counts;
}

void TierSimulation::Upload() {
  for_device_.clear();
  for (const uint32_t expert : batch_) {
    if (ram_.Contains(expert)) for_device_.push_back({device_.Value(expert), expert});
  }
  std::sort(for_device_.begin(), for_device_.end(), std::greater<>());
  uint32_t uploads = 0;
  for (const auto& [value, expert] : for_device_) {
    if (uploads == kUploadsPerLayer) break;
    const auto anything = [](uint32_t) { return true; };
    const std::optional<uint32_t> victim = device_.Victim(expert, anything);
    if (victim && device_.Value(*victim) >= value) continue;
    ram_.Remove(expert);
    bool done = false;
    const std::optional<uint32_t> down = device_.Load(expert, Phase::kDecode, anything, &done);
    if (!done) {  // a device without a slot of this size
      ram_.Load(expert, Phase::kDecode, anything, &done);
      continue;
    }
    ++uploads;
    if (down) ram_.Load(*down, Phase::kDecode, anything, &done);
  }
}

void TokenClock::Layer(const TierCounts& counts) {
  const bool device = machine_.device_rate > 0;
  const double on_device = device ? expert_bytes_ * static_cast<double>(counts.device) : 0;
  const double in_ram = expert_bytes_ * static_cast<double>(counts.ram);
  const double missing = expert_bytes_ * static_cast<double>(counts.drive);
  const double dense = dense_ / (device ? machine_.device_rate : machine_.ram_rate);
  const double hits =
      std::max(device ? on_device / machine_.device_rate : 0, in_ram / machine_.ram_rate);
  const double load = missing > 0 ? machine_.drive_latency + missing / machine_.drive_rate : 0;
  const double stall = std::max(0.0, load - hits);
  seconds_ += dense + hits + stall + missing / machine_.ram_rate;
  stall_ += stall;
  drive_bytes_ += missing;
}

double TokenClock::least_seconds_per_token() const {
  return std::max(seconds_per_token() - stall_per_token(),
                  drive_bytes_per_token() / machine_.drive_rate);
}

}  // namespace strata::cli
