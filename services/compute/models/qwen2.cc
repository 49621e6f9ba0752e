// `qwen2`: Qwen2 and Qwen2.5, dense. Biases on q, k and v (loaded because the file has them).
#include "common/base/status.h"
#include "services/compute/models/plain_decoder.h"
#include "services/compute/models/registry.h"

namespace strata::compute {

absl::StatusOr<std::unique_ptr<Model>> LoadQwen2(WeightLoader& loader) {
  STRATA_ASSIGN_OR_RETURN(const HyperParameters parameters, HyperParameters::From(loader.file()));
  STRATA_ASSIGN_OR_RETURN(DecoderSpec spec, ReadDecoderSpec(parameters, loader.file()));
  spec.attention.rope_style = RopeStyle::kHalves;
  return LoadPlainDecoder(loader, std::move(spec));
}

}  // namespace strata::compute
