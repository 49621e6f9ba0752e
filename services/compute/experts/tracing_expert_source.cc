#include "services/compute/experts/tracing_expert_source.h"

#include "common/base/status.h"

namespace strata::compute {

absl::StatusOr<std::unique_ptr<TracingExpertSource>> TracingExpertSource::Create(
    std::unique_ptr<ExpertSource> source, const std::string& path, uint32_t layers,
    uint32_t experts, uint32_t used) {
  STRATA_ASSIGN_OR_RETURN(auto writer, trace::Writer::Create(path, layers, experts, used));
  return std::unique_ptr<TracingExpertSource>(
      new TracingExpertSource(std::move(source), std::move(writer)));
}

void TracingExpertSource::CountUses(std::span<const ExpertUse> uses, ExpertPriority priority) {
  uses_.clear();
  for (const ExpertUse& use : uses) uses_.push_back({use.id.index, use.tokens});
  if (!uses.empty()) {
    writer_->Write(priority != ExpertPriority::kDecode, uses.front().id.layer, uses_);
  }
  source_->CountUses(uses, priority);
}

}  // namespace strata::compute
