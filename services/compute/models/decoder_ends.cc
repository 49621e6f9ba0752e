#include "services/compute/models/decoder_ends.h"

#include <array>

#include "common/base/status.h"

namespace strata::compute {

absl::StatusOr<DecoderEnds> DecoderEnds::Load(WeightLoader& loader, Rope rope, int hidden_size,
                                              int vocab_size, float norm_eps) {
  DecoderEnds ends(std::move(rope));
  ends.norm_eps_ = norm_eps;
  STRATA_ASSIGN_OR_RETURN(ends.embedding_,
                          loader.Matrix("token_embd.weight", vocab_size, hidden_size));
  STRATA_ASSIGN_OR_RETURN(ends.norm_, loader.Vector("output_norm.weight", hidden_size));
  STRATA_ASSIGN_OR_RETURN(ends.head_,
                          loader.OptionalMatrix("output.weight", vocab_size, hidden_size));
  if (ends.head_.empty()) ends.head_ = ends.embedding_;
  return ends;
}

void DecoderEnds::Begin(Step& step) const {
  const auto rows = static_cast<int64_t>(step.tokens.size());
  step.x = step.scratch.Take(rows, embedding_.cols);
  step.cos_sin = step.scratch.Take(rows, rope_.rotary());
  step.backend.EmbedRows(embedding_, step.tokens, step.x);
  rope_.FillTable(step.backend, step.positions, step.cos_sin);
}

void DecoderEnds::Logits(Step& step, std::span<const int32_t> rows, const Tensor& logits) const {
  const Scratch::Scope scope(step.scratch);
  const auto count = static_cast<int64_t>(rows.size());
  const Tensor picked = step.scratch.Take(count, embedding_.cols);
  step.backend.GatherRows(step.x, rows, picked);
  step.backend.RmsNorm(picked, norm_, norm_eps_, picked);
  step.backend.MatMul(picked, std::array{head_}, {}, std::array{logits}, /*accumulate=*/false);
}

size_t DecoderEnds::ScratchBytes(int rows) const {
  // The residual stream, the rows of it that are wanted, and of those the ones picked for logits.
  return 3 * Scratch::Bytes(rows, embedding_.cols) + Scratch::Bytes(rows, rope_.rotary());
}

absl::StatusOr<ModelInfo> ReadModelInfo(const HyperParameters& parameters,
                                        const gguf::Model& file) {
  ModelInfo info;
  info.architecture = parameters.architecture();
  STRATA_ASSIGN_OR_RETURN(info.layers, parameters.Get("block_count"));
  STRATA_ASSIGN_OR_RETURN(info.hidden_size, parameters.Get("embedding_length"));
  STRATA_ASSIGN_OR_RETURN(info.context_trained, parameters.Get("context_length"));
  const gguf::TensorInfo* embedding = file.Find("token_embd.weight");
  if (embedding == nullptr || embedding->rows() > INT32_MAX) {
    return absl::NotFoundError("the model file lacks a usable tensor 'token_embd.weight'");
  }
  info.vocab_size = static_cast<int>(embedding->rows());
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    info.parameters += tensor.values();
    info.bytes += tensor.bytes;
  }
  return info;
}

}  // namespace strata::compute
