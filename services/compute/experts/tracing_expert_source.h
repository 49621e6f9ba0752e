// Writes down what the router chose, then does what another source does.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/trace/routing_trace.h"
#include "services/compute/experts/expert_source.h"

#include "absl/status/statusor.h"

namespace strata::compute {

class TracingExpertSource : public ExpertSource {
 public:
  // `experts` of each of `layers` layers, `used` by a token.
  static absl::StatusOr<std::unique_ptr<TracingExpertSource>> Create(
      std::unique_ptr<ExpertSource> source, const std::string& path, uint32_t layers,
      uint32_t experts, uint32_t used);

  void CountUses(std::span<const ExpertUse> uses, ExpertPriority priority) override;

  void Begin(std::span<const ExpertId> experts, ExpertPriority priority) override {
    source_->Begin(experts, priority);
  }
  absl::StatusOr<std::span<const ReadyExpert>> Next() override { return source_->Next(); }
  void End() override { source_->End(); }
  void FindResident(uint16_t layer, std::span<uint8_t> in_memory) const override {
    source_->FindResident(layer, in_memory);
  }
  bool HoldsAll() const override { return source_->HoldsAll(); }
  void Promote(std::span<const ExpertId> experts) override { source_->Promote(experts); }
  void LookAhead(std::span<const ExpertId> experts, ExpertPriority priority) override {
    source_->LookAhead(experts, priority);
  }
  void HeldElsewhere(std::span<const ExpertId> experts) override {
    source_->HeldElsewhere(experts);
  }
  absl::Status WaitUntilReady(int timeout_ms) override {
    return source_->WaitUntilReady(timeout_ms);
  }
  ExpertCounters counters() const override { return source_->counters(); }

 private:
  TracingExpertSource(std::unique_ptr<ExpertSource> source, std::unique_ptr<trace::Writer> writer)
      : source_(std::move(source)), writer_(std::move(writer)) {}

  const std::unique_ptr<ExpertSource> source_;
  const std::unique_ptr<trace::Writer> writer_;
  std::vector<trace::Use> uses_;  // scratch
};

}  // namespace strata::compute
