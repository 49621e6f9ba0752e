// Self-attention of a pre-norm decoder layer with grouped K/V heads over the paged cache.
//
//   h = norm(x);  q, k, v = h Wq + bq, h Wk + bk, h Wv + bv      (biases optional)
//   q, k = rope(norm_head(q)), rope(norm_head(k))                (head norms optional)
//   x += softmax(q K^T / sqrt(head_dim)) V Wo + bo
#pragma once

#include <cstdint>
#include <span>

#include "services/compute/models/step.h"
#include "services/compute/models/weights.h"

#include "absl/status/statusor.h"

namespace strata::compute {

struct AttentionShape {
  int hidden_size = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float norm_eps = 0;
  RopeStyle rope_style = RopeStyle::kHalves;
  bool head_norm = false;  // RMS norm of every query and key head (Qwen3)
  int window = 0;          // sliding window; 0 = none
};

// Reads head counts and the norm's epsilon; checks that they are consistent.
absl::StatusOr<AttentionShape> ReadAttentionShape(const HyperParameters& parameters,
                                                  int hidden_size);

class AttentionBlock {
 public:
  // Tensors blk.<layer>.attn_{norm,q,k,v,output}[.bias], attn_{q,k}_norm with head_norm.
  static absl::StatusOr<AttentionBlock> Load(WeightLoader& loader, const AttentionShape& shape,
                                             int layer);

  void Forward(Step& step) const;
  // The same as the last layer does it: keys and values of all rows are stored, the rest is done
  // for the rows `wanted` only, which become step.x. `x` is memory for them [wanted, hidden_size].
  void ForwardLast(Step& step, std::span<const int32_t> wanted, const Tensor& x) const;
  // The keys that Forward would store for step.x, copied to the host [rows, kv_heads * head_dim].
  void Keys(Step& step, std::span<float> keys) const;
  static size_t ScratchBytes(const AttentionShape& shape, int rows);

 private:
  // Turns the keys and stores both.
  void Store(Step& step, const Tensor& k, const Tensor& v) const;
  // Adds to x what rows with these queries see.
  void Attend(Step& step, const Tensor& q, const Tensor& cos_sin, const AttentionRows& rows,
              const Tensor& x) const;

  AttentionShape shape_;
  int layer_ = 0;
  Tensor norm_;
  Tensor q_, k_, v_, output_;
  Tensor q_bias_, k_bias_, v_bias_, output_bias_;
  Tensor q_norm_, k_norm_;
};

}  // namespace strata::compute
