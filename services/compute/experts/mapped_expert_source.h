// Experts straight from the mapped model file: no store, no other process. For one-process use
// (`expertstore: "none"`) and as the reference that tests compare the arena with. The operating
// system's page cache does the caching, with all the costs of page faults.
#pragma once

#include <memory>
#include <vector>

#include "common/gguf/expert_geometry.h"
#include "common/gguf/reader.h"
#include "services/compute/experts/expert_source.h"

#include "absl/status/statusor.h"

namespace strata::compute {

class MappedExpertSource : public ExpertSource {
 public:
  // `model` must outlive the source; `geometry` must be the model's own.
  static absl::StatusOr<std::unique_ptr<MappedExpertSource>> Create(
      const gguf::Model& model, const gguf::ExpertGeometry& geometry);

  void Begin(std::span<const ExpertId> experts, ExpertPriority priority) override;
  absl::StatusOr<std::span<const ReadyExpert>> Next() override;
  void End() override;
  void CountUses(std::span<const ExpertUse> /*uses*/, ExpertPriority /*priority*/) override {}
  // The page cache does not tell what it holds: everything counts as there.
  void FindResident(uint16_t layer, std::span<uint8_t> in_memory) const override;
  bool HoldsAll() const override { return true; }
  void Promote(std::span<const ExpertId> /*experts*/) override {}
  void LookAhead(std::span<const ExpertId> /*experts*/, ExpertPriority /*priority*/) override {}
  void HeldElsewhere(std::span<const ExpertId> /*experts*/) override {}
  absl::Status WaitUntilReady(int timeout_ms) override;
  ExpertCounters counters() const override { return counters_; }

 private:
  struct Layer {
    uint32_t parts = 0;
    const std::byte* base[shm::kMaxParts] = {};
    uint64_t bytes[shm::kMaxParts] = {};
  };
  MappedExpertSource() = default;

  std::vector<Layer> layers_;  // by layer number
  std::vector<ReadyExpert> ready_;
  bool handed_out_ = false;
  ExpertCounters counters_;
};

}  // namespace strata::compute
