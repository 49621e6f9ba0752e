// `qwen3`: Qwen3, dense. RMS norm over every query and key head before rotation, no biases.
#include "common/base/status.h"
#include "services/compute/models/plain_decoder.h"
#include "services/compute/models/registry.h"

namespace strata::compute {

absl::StatusOr<std::unique_ptr<Model>> LoadQwen3(WeightLoader& loader) {
  STRATA_ASSIGN_OR_RETURN(const HyperParameters parameters, HyperParameters::From(loader.file()));
  STRATA_ASSIGN_OR_RETURN(DecoderSpec spec, ReadDecoderSpec(parameters, loader.file()));
  spec.attention.rope_style = RopeStyle::kHalves;
  spec.attention.head_norm = true;
  return LoadPlainDecoder(loader, std::move(spec));
}

}  // namespace strata::compute
