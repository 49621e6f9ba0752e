// What a tokenizer is built from, read from GGUF metadata but independent of it. The views are
// borrowed: they must stay valid until the tokenizer is built, not longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace strata::tokenizer {

// `tokenizer.ggml.token_type`; other values make a token that text never becomes.
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Ids with a key of their own, `tokenizer.ggml.<name>_token_id`.
struct SpecialIds {
  std::optional<uint32_t> bos, eos, eot, eom, unk, pad, sep, mask;
  std::optional<uint32_t> fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep;
};

struct Vocabulary {
  std::string_view model;                // `tokenizer.ggml.model`: "gpt2" or "llama"
  std::string_view pre;                  // `tokenizer.ggml.pre`: only "gpt2" uses it
  std::vector<std::string_view> tokens;  // `tokenizer.ggml.tokens`: the index is the id
  std::vector<int32_t> types;            // `tokenizer.ggml.token_type`, or empty: all normal
  std::vector<float> scores;             // `tokenizer.ggml.scores`: only "llama" uses them
  std::vector<std::string_view> merges;  // `tokenizer.ggml.merges`: "left right" by rank
  SpecialIds ids;
  std::optional<bool> add_bos;           // `tokenizer.ggml.add_bos_token`
  std::optional<bool> add_space_prefix;  // `tokenizer.ggml.add_space_prefix`: "llama", default on
};

// Far above any published vocabulary (the largest have about 260 thousand tokens).
inline constexpr size_t kMaxTokens = size_t{1} << 22;
inline constexpr size_t kMaxMerges = size_t{1} << 23;
inline constexpr size_t kMaxTokenBytes = size_t{1} << 16;

}  // namespace strata::tokenizer
