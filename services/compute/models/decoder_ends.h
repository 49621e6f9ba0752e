// What every decoder-only transformer has around its layers: embedding, rotation table, output norm
// and head.
#pragma once

#include "services/compute/models/model.h"
#include "services/compute/models/rope.h"
#include "services/compute/models/weights.h"

#include "absl/status/statusor.h"

namespace strata::compute {

class DecoderEnds {
 public:
  // Tensors token_embd, output_norm, and output (token_embd again if absent: tied weights).
  static absl::StatusOr<DecoderEnds> Load(WeightLoader& loader, Rope rope, int hidden_size,
                                          int vocab_size, float norm_eps);

  // Embeds the step's tokens into step.x and computes step.cos_sin. Both are taken from the step's
  // scratch and stay until the caller's scope ends.
  void Begin(Step& step) const;
  const Rope& rope() const { return rope_; }
  void Logits(Step& step, std::span<const int32_t> rows, const Tensor& logits) const;

  // Of Begin and of one Logits call with up to `rows` rows.
  size_t ScratchBytes(int rows) const;

 private:
  explicit DecoderEnds(Rope rope) : rope_(std::move(rope)) {}
  Rope rope_;
  Tensor embedding_, norm_, head_;
  float norm_eps_ = 0;
};

// layers, hidden size, vocabulary, context and file size from the metadata.
absl::StatusOr<ModelInfo> ReadModelInfo(const HyperParameters& parameters, const gguf::Model& file);

}  // namespace strata::compute
