// What a model weighs and what a token costs, from the file's tables alone.
//
// Decoding reads every dense weight and the chosen experts once a token, whatever the architecture,
// so bytes per token follow from tensor sizes. Embedding tables are only looked up (a few rows a
// token) and draft layers (multi-token prediction) do not run in plain decoding: both are counted
// apart.
#pragma once

#include <cstdint>
#include <optional>

#include "common/base/status.h"
#include "common/gguf/expert_geometry.h"
#include "common/gguf/reader.h"

namespace strata::gguf {

struct ModelCost {
  uint64_t parameters = 0;         // all values of all tensors
  uint64_t active_parameters = 0;  // multiplied with for one token

  // Sizes in the file; together they are all tensor bytes.
  uint64_t dense_bytes = 0;
  uint64_t table_bytes = 0;   // looked up by row
  uint64_t expert_bytes = 0;  // of the trunk
  uint64_t draft_bytes = 0;   // trailing draft layers, their experts included

  uint32_t used_experts = 0;            // per token and layer; 0 for a dense model
  uint64_t expert_bytes_per_token = 0;  // of the used experts of all layers
  // Bytes of cache written by each token in F16, all of which each later token reads. Empty where
  // the file does not follow the common key names (compressed or recurrent caches).
  std::optional<uint64_t> kv_bytes_per_token;

  // Without K/V, which grows with the context.
  uint64_t bytes_per_token() const { return dense_bytes + expert_bytes_per_token; }
};

absl::StatusOr<ModelCost> EstimateCost(const Model& model, const ExpertGeometry& geometry);

}  // namespace strata::gguf
