// `llama`: Llama 1 to 3 and Mistral; with expert_count also Mixtral. The converter permuted q and k
// for interleaved rotation. Llama 3.1 brings divisors of the frequencies (rope_freqs.weight).
#include "common/base/status.h"
#include "services/compute/models/plain_decoder.h"
#include "services/compute/models/registry.h"

namespace strata::compute {

absl::StatusOr<std::unique_ptr<Model>> LoadLlama(WeightLoader& loader) {
  STRATA_ASSIGN_OR_RETURN(const HyperParameters parameters, HyperParameters::From(loader.file()));
  STRATA_ASSIGN_OR_RETURN(DecoderSpec spec, ReadDecoderSpec(parameters, loader.file()));
  spec.attention.rope_style = RopeStyle::kInterleaved;
  return LoadPlainDecoder(loader, std::move(spec));
}

}  // namespace strata::compute
