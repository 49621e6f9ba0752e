// Finds special tokens in text, before any other tokenization, exactly as llama.cpp does: tokens
// are tried from the longest text to the shortest, each taking its leftmost occurrences in what the
// longer ones left over. Linear in the text plus n log n in the number of occurrences. Immutable,
// thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/tokenizer/token_table.h"

#include "absl/container/flat_hash_map.h"

namespace strata::tokenizer {

// A part of the text in which control tokens may be recognised: [begin, end).
struct TextRange {
  size_t begin;
  size_t end;
};

struct SpecialMatch {
  size_t begin;
  size_t length;
  uint32_t id;
};

class SpecialMatcher {
 public:
  explicit SpecialMatcher(const TokenTable& tokens);

  // Non-overlapping matches in text order. User-defined tokens match anywhere; control and unknown
  // tokens only where they lie wholly inside one of the ranges (sorted, disjoint).
  std::vector<SpecialMatch> Find(std::string_view text,
                                 std::span<const TextRange> control_ranges) const;

 private:
  struct Candidate {
    uint32_t priority;  // position in the order longest to shortest
    uint32_t id;
    size_t begin;
    size_t length;
  };
  struct Special {
    uint32_t id;
    bool control;
  };
  void Insert(std::string_view text, uint32_t priority);
  static std::vector<SpecialMatch> Resolve(std::vector<Candidate> candidates);

  static constexpr uint32_t kNone = 0xFFFFFFFF;
  std::array<bool, 256> starts_{};                 // some special token starts with this byte
  absl::flat_hash_map<uint64_t, uint32_t> edges_;  // trie: node << 8 | byte -> node
  std::vector<uint32_t> terminal_;                 // by node: priority of the token ending there
  std::vector<Special> specials_;                  // by priority
};

}  // namespace strata::tokenizer
