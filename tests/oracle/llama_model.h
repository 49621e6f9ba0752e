// A GGUF model run by llama.cpp, to compare tokens and logits with.
//
//   STRATA_ASSIGN_OR_RETURN(auto model, LlamaModel::Load(*LlamaLibrary::Get(), "tiny.gguf", {}));
//   STRATA_ASSIGN_OR_RETURN(std::vector<float> logits, model->Logits(model->Tokenize("Hello")));
//
// The defaults are those under which llama.cpp is closest to exact arithmetic: keys and values in
// F32, no flash attention, no repacked weights. Logits of quantised weights still differ between
// processors, because llama.cpp rounds activations to 8 bits: compare medians there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/quant/tensor_type.h"
#include "tests/oracle/llama_library.h"

namespace strata::oracle {

struct LlamaModelOptions {
  bool vocabulary_only = false;  // tokens only; much faster to load
  int threads = 2;
  uint32_t context = 2048;  // longest text, in tokens
  uint32_t micro_batch = 512;
  TensorType cache = TensorType::kF32;  // of keys and values
  bool flash_attention = false;
  bool repack_weights = false;
};

// Not thread-safe.
class LlamaModel {
 public:
  static absl::StatusOr<std::unique_ptr<LlamaModel>> Load(const LlamaLibrary& llama,
                                                          const std::string& path,
                                                          const LlamaModelOptions& options);
  LlamaModel(const LlamaModel&) = delete;
  LlamaModel& operator=(const LlamaModel&) = delete;
  ~LlamaModel();

  int vocabulary_size() const { return vocabulary_size_; }

  // `add_special`: begin and end tokens as the model wants them. `parse_special`: control tokens
  // written out in the text ("<|im_end|>") become those tokens.
  std::vector<int32_t> Tokenize(std::string_view text, bool add_special = false,
                                bool parse_special = true) const;
  // The bytes of one token; `special`: spell out control tokens, which are empty otherwise.
  std::string TokenBytes(int32_t token, bool special = true) const;
  // Whether llama.cpp stops generating at this token.
  bool IsEndOfGeneration(int32_t token) const;

  // [tokens.size(), vocabulary_size()], of a fresh context: every call starts at position 0.
  absl::StatusOr<std::vector<float>> Logits(std::span<const int32_t> tokens);

  // For benchmarks: forget everything; continue the text by these tokens; the most likely next
  // token.
  void Reset();
  absl::Status Append(std::span<const int32_t> tokens);
  int32_t MostLikely() const;

 private:
  explicit LlamaModel(const LlamaLibrary& llama) : llama_(llama) {}
  absl::Status MakeContext(const LlamaModelOptions& options);

  const LlamaLibrary& llama_;
  void* model_ = nullptr;
  void* context_ = nullptr;
  const void* vocabulary_ = nullptr;
  int vocabulary_size_ = 0;
  uint32_t max_tokens_ = 0;
};

}  // namespace strata::oracle
