// Byte-pair encoding of one word: start with its bytes, and merge the adjacent pair of lowest rank
// (the leftmost of equals) until no pair has a rank. Immutable apart from a memo of atomics,
// thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/tokenizer/pair_table.h"
#include "common/tokenizer/token_table.h"
#include "common/tokenizer/word_index.h"

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace strata::tokenizer {

class BytePairEncoder {
 public:
  // `merges` are "left right" in the byte alphabet, in rank order. With `ignore_merges` a word that
  // is a token is that token, whatever the merges say. `tokens` must outlive the encoder.
  static absl::StatusOr<std::unique_ptr<BytePairEncoder>> Build(
      const TokenTable& tokens, std::span<const std::string_view> merges, bool ignore_merges);

  // Appends the tokens of one word (bytes as in the text, not in the alphabet). Never control
  // tokens. O(n log n) in the length of the word.
  void EncodeWord(std::string_view word, std::vector<uint32_t>* ids) const;

  // The token of exactly these bytes, control tokens excepted.
  std::optional<uint32_t> FindWord(std::string_view bytes) const { return words_.Find(bytes); }

 private:
  // A symbol is a token, or (from token count on) a string that only merges know of.
  using Symbol = uint32_t;
  enum class Memo : uint8_t { kUnknown, kMergesToItself, kMergesToOthers };

  BytePairEncoder(const TokenTable& tokens, bool ignore_merges);
  void AddWords();
  absl::Status AddBytes();
  absl::Status AddMerges(std::span<const std::string_view> merges);
  Symbol FindOrAddSymbol(const std::string& bytes);

  MergeRule RuleFor(Symbol left, Symbol right) const { return pairs_.Find(left, right); }
  void MergeShort(std::string_view word, std::vector<uint32_t>* ids) const;
  void MergeLong(std::string_view word, std::vector<uint32_t>* ids) const;
  void Append(Symbol symbol, std::vector<uint32_t>* ids) const;

  const TokenTable& tokens_;
  const bool ignore_merges_;
  WordIndex words_;
  std::deque<std::string> spelled_;  // bytes in words_ that the token table does not hold
  std::array<Symbol, 256> byte_symbols_{};
  std::vector<std::string> extra_symbols_;          // bytes of the symbols that are not tokens
  absl::flat_hash_map<std::string, Symbol> extra_;  // only while building
  PairTable pairs_;
  std::vector<MergeRule> byte_pairs_;  // rules for two bytes, by left << 8 | right
  // Whether the merges turn a token's bytes into that token; found when first asked.
  std::unique_ptr<std::atomic<Memo>[]> memo_;
};

}  // namespace strata::tokenizer
