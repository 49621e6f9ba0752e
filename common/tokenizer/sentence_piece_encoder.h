// SentencePiece vocabularies of the merging kind (Llama-2, Mistral, Gemma), as llama.cpp encodes
// them: start with the characters, and join the adjacent pair that makes the token of highest score
// (the leftmost of equals) until no pair makes a token; what is no token then is spelled in byte
// tokens. Immutable, thread-safe.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/tokenizer/token_table.h"
#include "common/tokenizer/word_index.h"

#include "absl/status/statusor.h"

namespace strata::tokenizer {

class SentencePieceEncoder {
 public:
  // One score per token. `tokens` must outlive the encoder.
  static absl::StatusOr<std::unique_ptr<SentencePieceEncoder>> Build(const TokenTable& tokens,
                                                                     std::vector<float> scores);

  // Appends the tokens of a text, with a space put in front if `space_prefix`. Never control
  // tokens. O(n log n) in the longest stretch without a place that no token can span (usually a
  // word).
  void Encode(std::string_view text, bool space_prefix, std::vector<uint32_t>* ids) const;

  // The token of exactly these bytes, control and byte tokens excepted.
  std::optional<uint32_t> FindPiece(std::string_view piece) const;

 private:
  SentencePieceEncoder(const TokenTable& tokens, std::vector<float> scores);
  absl::Status AddTokens();
  absl::Status AddBytes();
  void EncodeStretch(std::string_view marked, std::vector<uint32_t>* ids) const;
  void Append(std::string_view symbol, std::vector<uint32_t>* ids) const;

  const TokenTable& tokens_;
  const std::vector<float> scores_;
  WordIndex words_;  // by text, spaces as U+2581
  std::array<uint32_t, 256> byte_tokens_{};
  std::bitset<256> before_space_mark_;  // bytes that precede a U+2581 inside some token
  size_t longest_token_ = 0;
};

}  // namespace strata::tokenizer
