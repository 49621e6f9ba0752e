// What one sequence's state consists of, as declared by a model.
//
// Four kinds of component exist (see proto StateComponent). This release holds models whose state
// is rows only: plain keys and values of every layer, one row a token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/quant/tensor_type.h"
#include "strata/v1/model.pb.h"

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

  int64_t width() const { return static_cast<int64_t>(kv_heads) * head_dim; }
  // Bytes of one token in all layers, keys and values.
  uint64_t TokenBytes() const;
};

// The description that is part of every block's key: a block saved under another layout is never
// restored into this one.
v1::StateLayout DescribeLayout(const KvShape& shape, int block_tokens);

}  // namespace strata::compute
