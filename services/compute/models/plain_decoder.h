// The ordinary pre-norm decoder: embedding, layers of attention and feed-forward (dense or mixture
// of experts), output norm, head. Llama, Qwen2, Qwen3 and Qwen3-MoE are this decoder with different
// settings; an architecture that is more than settings gets a forward function of its own.
#pragma once

#include <memory>
#include <optional>

#include "services/compute/models/attention_block.h"
#include "services/compute/models/ffn_block.h"
#include "services/compute/models/model.h"
#include "services/compute/models/moe_block.h"
#include "services/compute/models/rope.h"

#include "absl/status/statusor.h"

namespace strata::compute {

struct DecoderSpec {
  ModelInfo info;
  AttentionShape attention;
  RopeParameters rope;
  std::optional<FfnShape> dense;  // exactly one of the two
  std::optional<MoeShape> moe;
};

// Everything that all plain decoders read alike; `moe` if the file has an expert count.
absl::StatusOr<DecoderSpec> ReadDecoderSpec(const HyperParameters& parameters,
                                            const gguf::Model& file);

absl::StatusOr<std::unique_ptr<Model>> LoadPlainDecoder(WeightLoader& loader, DecoderSpec spec);

}  // namespace strata::compute
