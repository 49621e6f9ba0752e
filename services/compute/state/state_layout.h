// What one sequence's state consists of, as declared by a model.
//
// Four kinds of component exist (see proto StateComponent). This release holds models whose state
// is rows only: plain keys and values of every layer, one row a token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/quant/tensor_type.h"
#include "strata/v1/model.pb.h"

#include "absl/status/statusor.h"

namespace strata::compute {

// K/V of a transformer: `layers` layers, each token stores kv_heads * head_dim keys and as many
// values in `type`.
struct KvShape {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  TensorType type = TensorType::kF16;
  // The model can turn stored keys to another position (Model::MoveKeys).
  bool keys_turn = false;

  // Whether stored keys may be turned: coarser types would be rounded again, by as much as the
  // first time.
  bool movable() const {
    return keys_turn && (type == TensorType::kF16 || type == TensorType::kF32);
  }
  int64_t width() const { return static_cast<int64_t>(kv_heads) * head_dim; }
  // Bytes of one token in all layers, keys and values.
  uint64_t TokenBytes() const;
};

// The type of that name ("f16", "f32", "bf16", "q8_0") for heads of head_dim values.
// InvalidArgument if there is none, or if its blocks do not divide a head.
absl::StatusOr<TensorType> KvTypeOf(std::string_view name, int head_dim);

// The description that is part of every block's key: a block saved under another layout is never
// restored into this one.
v1::StateLayout DescribeLayout(const KvShape& shape, int block_tokens);

}  // namespace strata::compute
