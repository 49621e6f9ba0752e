// `qwen3moe`: Qwen3 30B-A3B and 235B-A22B. Attention of Qwen3; every layer routes to the top
// experts by softmax, weights normalised over the chosen ones; no shared expert.
#include "common/base/status.h"
#include "services/compute/models/plain_decoder.h"
#include "services/compute/models/registry.h"

namespace strata::compute {

absl::StatusOr<std::unique_ptr<Model>> LoadQwen3Moe(WeightLoader& loader) {
  STRATA_ASSIGN_OR_RETURN(const HyperParameters parameters, HyperParameters::From(loader.file()));
  STRATA_ASSIGN_OR_RETURN(DecoderSpec spec, ReadDecoderSpec(parameters, loader.file()));
  if (!spec.moe) {
    return absl::InvalidArgumentError("metadata qwen3moe.expert_count is missing or zero");
  }
  spec.attention.rope_style = RopeStyle::kHalves;
  spec.attention.head_norm = true;
  return LoadPlainDecoder(loader, std::move(spec));
}

}  // namespace strata::compute
