// Small models with random weights that both llama.cpp and Strata load: the shapes of a real
// architecture; without a vocabulary (tests feed token ids) or with another file's.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/quant/tensor_type.h"

namespace strata::oracle {

struct RandomModel {
  std::string architecture = "qwen3moe";  // or llama, qwen2, qwen3
  uint32_t layers = 2;
  uint32_t embedding = 256;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 64;
  uint32_t feed_forward = 512;  // per expert, if there are experts
  uint32_t experts = 8;         // 0: dense; qwen3moe needs some, qwen2 and qwen3 none
  uint32_t experts_used = 2;
  uint32_t vocabulary = 128;
  uint32_t context = 4096;
  bool tied_head = false;              // no output.weight
  TensorType type = TensorType::kF32;  // of the matrices; norms, biases and the router stay F32
  uint64_t seed = 1;
  // A GGUF file whose tokenizer and chat template are copied; `vocabulary` follows it then. Empty:
  // no vocabulary.
  std::string tokenizer_of;
};

// The same seed and shape give the same F32 weights; other types are quantised from those.
absl::Status WriteRandomModel(const std::string& path, const RandomModel& model);

}  // namespace strata::oracle
