#include "services/compute/models/attention_block.h"

#include <array>
#include <cmath>
#include <vector>

#include "common/base/status.h"

namespace strata::compute {

absl::StatusOr<AttentionShape> ReadAttentionShape(const HyperParameters& parameters,
                                                  int hidden_size) {
  AttentionShape shape;
  shape.hidden_size = hidden_size;
  STRATA_ASSIGN_OR_RETURN(shape.heads, parameters.Get("attention.head_count"));
  STRATA_ASSIGN_OR_RETURN(shape.kv_heads, parameters.Get("attention.head_count_kv", shape.heads));
  STRATA_ASSIGN_OR_RETURN(shape.head_dim,
                          parameters.Get("attention.key_length", hidden_size / shape.heads));
  STRATA_ASSIGN_OR_RETURN(const int value_dim,
                          parameters.Get("attention.value_length", shape.head_dim));
  STRATA_ASSIGN_OR_RETURN(shape.norm_eps, parameters.GetFloat("attention.layer_norm_rms_epsilon"));
  if (shape.kv_heads <= 0 || shape.heads % shape.kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata attention.head_count_kv = ", shape.kv_heads,
                     " does not divide head_count = ", shape.heads));
  }
  if (shape.head_dim <= 0 || shape.head_dim % 2 != 0 || value_dim != shape.head_dim) {
    return absl::InvalidArgumentError(absl::StrCat(
        "metadata attention.key_length = ", shape.head_dim, ", value_length = ", value_dim,
        ": both must be equal, even and positive for this architecture"));
  }
  return shape;
}

absl::StatusOr<AttentionBlock> AttentionBlock::Load(WeightLoader& loader,
                                                    const AttentionShape& shape, int layer) {
  AttentionBlock block;
  block.shape_ = shape;
  block.layer_ = layer;
  const auto name = [&](std::string_view suffix) { return WeightLoader::InLayer(layer, suffix); };
  const int64_t hidden = shape.hidden_size;
  const int64_t q_width = int64_t{shape.heads} * shape.head_dim;
  const int64_t kv_width = int64_t{shape.kv_heads} * shape.head_dim;

  STRATA_ASSIGN_OR_RETURN(block.norm_, loader.Vector(name("attn_norm.weight"), hidden));
  if (loader.Has(name("attn_qkv.weight"))) {
    // Fused rows q | k | v.
    const auto rows = [&](int64_t first, int64_t count) {
      return loader.MatrixRows(name("attn_qkv.weight"), q_width + 2 * kv_width, hidden, first,
                               count);
    };
    STRATA_ASSIGN_OR_RETURN(block.q_, rows(0, q_width));
    STRATA_ASSIGN_OR_RETURN(block.k_, rows(q_width, kv_width));
    STRATA_ASSIGN_OR_RETURN(block.v_, rows(q_width + kv_width, kv_width));
  } else {
    STRATA_ASSIGN_OR_RETURN(block.q_, loader.Matrix(name("attn_q.weight"), q_width, hidden));
    STRATA_ASSIGN_OR_RETURN(block.k_, loader.Matrix(name("attn_k.weight"), kv_width, hidden));
    STRATA_ASSIGN_OR_RETURN(block.v_, loader.Matrix(name("attn_v.weight"), kv_width, hidden));
  }
  STRATA_ASSIGN_OR_RETURN(block.output_,
                          loader.Matrix(name("attn_output.weight"), hidden, q_width));
  STRATA_ASSIGN_OR_RETURN(block.q_bias_, loader.OptionalVector(name("attn_q.bias"), q_width));
  STRATA_ASSIGN_OR_RETURN(block.k_bias_, loader.OptionalVector(name("attn_k.bias"), kv_width));
  STRATA_ASSIGN_OR_RETURN(block.v_bias_, loader.OptionalVector(name("attn_v.bias"), kv_width));
  STRATA_ASSIGN_OR_RETURN(block.output_bias_,
                          loader.OptionalVector(name("attn_output.bias"), hidden));
  if (shape.head_norm) {
    STRATA_ASSIGN_OR_RETURN(block.q_norm_,
                            loader.Vector(name("attn_q_norm.weight"), shape.head_dim));
    STRATA_ASSIGN_OR_RETURN(block.k_norm_,
                            loader.Vector(name("attn_k_norm.weight"), shape.head_dim));
  }
  return block;
}

size_t AttentionBlock::ScratchBytes(const AttentionShape& shape, int rows) {
  const int64_t q_width = int64_t{shape.heads} * shape.head_dim;
  const int64_t kv_width = int64_t{shape.kv_heads} * shape.head_dim;
  // The last layer has a copy of the wanted rows besides, and of their rotations.
  return 2 * Scratch::Bytes(rows, shape.hidden_size) + 2 * Scratch::Bytes(rows, q_width) +
         2 * Scratch::Bytes(rows, kv_width) + Scratch::Bytes(rows, shape.head_dim);
}

void AttentionBlock::Keys(Step& step, std::span<float> keys) const {
  Backend& backend = step.backend;
  const Scratch::Scope scope(step.scratch);
  const Tensor h = step.scratch.Take(step.rows(), shape_.hidden_size);
  const Tensor k = step.scratch.Take(step.rows(), k_.rows);
  backend.RmsNorm(step.x, norm_, shape_.norm_eps, h);
  backend.MatMul(h, std::array{k_}, std::array{k_bias_}, std::array{k}, /*accumulate=*/false);
  backend.NormRope(k, shape_.head_dim, k_norm_, shape_.norm_eps, step.cos_sin, shape_.rope_style);
  backend.CopyToHost(std::as_writable_bytes(keys), k.data);
}

void AttentionBlock::Store(Step& step, const Tensor& k, const Tensor& v) const {
  step.backend.NormRope(k, shape_.head_dim, k_norm_, shape_.norm_eps, step.cos_sin,
                        shape_.rope_style);
  step.backend.StoreKv(k, v, step.slots, step.kv.Layer(layer_));
}

void AttentionBlock::Attend(Step& step, const Tensor& q, const Tensor& cos_sin,
                            const AttentionRows& rows, const Tensor& x) const {
  Backend& backend = step.backend;
  const Tensor attended = step.scratch.Take(q.rows, q.cols);
  backend.NormRope(q, shape_.head_dim, q_norm_, shape_.norm_eps, cos_sin, shape_.rope_style);
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
  backend.Attention(q, rows, step.kv.Layer(layer_), scale, shape_.window, attended);
  backend.MatMul(attended, std::array{output_}, std::array{output_bias_}, std::array{x},
                 /*accumulate=*/true);
}

void AttentionBlock::Forward(Step& step) const {
  const Scratch::Scope scope(step.scratch);
  const int rows = step.rows();
  const Tensor h = step.scratch.Take(rows, shape_.hidden_size);
  const Tensor q = step.scratch.Take(rows, q_.rows);
  const Tensor k = step.scratch.Take(rows, k_.rows);
  const Tensor v = step.scratch.Take(rows, v_.rows);

  step.backend.RmsNorm(step.x, norm_, shape_.norm_eps, h);
  step.backend.MatMul(h, std::array{q_, k_, v_}, std::array{q_bias_, k_bias_, v_bias_},
                      std::array{q, k, v}, /*accumulate=*/false);
  Store(step, k, v);
  Attend(step, q, step.cos_sin, step.attention, step.x);
}

void AttentionBlock::ForwardLast(Step& step, std::span<const int32_t> wanted,
                                 const Tensor& x) const {
  Backend& backend = step.backend;
  const Scratch::Scope scope(step.scratch);
  const Tensor h = step.scratch.Take(step.rows(), shape_.hidden_size);
  const Tensor k = step.scratch.Take(step.rows(), k_.rows);
  const Tensor v = step.scratch.Take(step.rows(), v_.rows);
  backend.RmsNorm(step.x, norm_, shape_.norm_eps, h);
  backend.MatMul(h, std::array{k_, v_}, std::array{k_bias_, v_bias_}, std::array{k, v},
                 /*accumulate=*/false);
  Store(step, k, v);

  if (!wanted.empty()) {
    std::vector<int32_t> sequence;
    std::vector<int32_t> position;
    for (const int32_t row : wanted) {
      sequence.push_back(step.attention.sequence[static_cast<size_t>(row)]);
      position.push_back(step.attention.position[static_cast<size_t>(row)]);
    }
    const Tensor h_wanted = step.scratch.Take(x.rows, shape_.hidden_size);
    const Tensor q = step.scratch.Take(x.rows, q_.rows);
    const Tensor cos_sin = step.scratch.Take(x.rows, step.cos_sin.cols);
    backend.GatherRows(h, wanted, h_wanted);
    backend.GatherRows(step.cos_sin, wanted, cos_sin);
    backend.GatherRows(step.x, wanted, x);
    backend.MatMul(h_wanted, std::array{q_}, std::array{q_bias_}, std::array{q},
                   /*accumulate=*/false);
    Attend(step, q, cos_sin, {sequence, position, step.attention.page_tables}, x);
  }
  step.x = x;
}

}  // namespace strata::compute
