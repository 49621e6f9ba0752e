#include "services/compute/experts/mapped_expert_source.h"

#include <algorithm>

#include "common/base/status.h"

namespace strata::compute {

absl::StatusOr<std::unique_ptr<MappedExpertSource>> MappedExpertSource::Create(
    const gguf::Model& model, const gguf::ExpertGeometry& geometry) {
  auto source = std::unique_ptr<MappedExpertSource>(new MappedExpertSource);
  source->ready_.reserve(kMaxBatch);
  for (const gguf::ExpertLayer& from : geometry.layers) {
    if (from.parts.size() > shm::kMaxParts) {
      return absl::InvalidArgumentError(absl::StrCat("layer ", from.layer, " has experts of ",
                                                     from.parts.size(), " parts, at most ",
                                                     shm::kMaxParts, " are known"));
    }
    if (source->layers_.size() <= from.layer) source->layers_.resize(from.layer + 1);
    Layer& layer = source->layers_[from.layer];
    for (const gguf::ExpertPart& part : from.parts) {
      STRATA_ASSIGN_OR_RETURN(const gguf::TensorInfo* tensor, model.Get(part.tensor));
      layer.base[layer.parts] = model.Data(*tensor).data();
      layer.bytes[layer.parts++] = part.bytes_per_expert;
    }
  }
  return source;
}

void MappedExpertSource::Begin(std::span<const ExpertId> experts, ExpertPriority /*priority*/) {
  ready_.clear();
  for (const ExpertId id : experts) {
    const Layer& layer = layers_[id.layer];
    ReadyExpert expert{static_cast<uint32_t>(ready_.size()), id, {}};
    for (uint32_t p = 0; p < layer.parts; ++p) {
      expert.parts.part[p] = layer.base[p] + id.index * layer.bytes[p];
    }
    ready_.push_back(expert);
  }
  handed_out_ = false;
  counters_.hits += experts.size();
}

absl::StatusOr<std::span<const ReadyExpert>> MappedExpertSource::Next() {
  if (handed_out_) return std::span<const ReadyExpert>();
  handed_out_ = true;
  return std::span<const ReadyExpert>(ready_);
}

void MappedExpertSource::End() { ready_.clear(); }

void MappedExpertSource::FindResident(uint16_t /*layer*/, std::span<uint8_t> in_memory) const {
  std::fill(in_memory.begin(), in_memory.end(), uint8_t{1});
}

absl::Status MappedExpertSource::WaitUntilReady(int /*timeout_ms*/) { return absl::OkStatus(); }

}  // namespace strata::compute
