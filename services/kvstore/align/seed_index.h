// Where short pieces of text ("grams") are stored.
//
// A gram is kGram consecutive tokens. The stored side is indexed at every kGram-th token of a
// block, the prompt is looked up at every token: so any text of 2 * kGram - 1 tokens or more that
// both share, at whatever offset, contains an indexed gram (where blocks hold a multiple of kGram
// tokens). Compared with seeds on line borders this needs no knowledge of lines when storing, and
// its guarantee is in tokens. The index costs one entry for kGram stored tokens and is rebuilt from
// the blocks' tokens at start. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/state/block_id.h"

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"

namespace strata::kvstore {

using state::BlockId;

class SeedIndex {
 public:
  static constexpr uint32_t kGram = 32;
  // Places kept for one gram, the newest: the same system prompt may be stored a thousand times,
  // and one copy is as good as another.
  static constexpr size_t kMaxPlaces = 8;

  struct Place {
    BlockId block;
    uint32_t offset = 0;  // of the gram in the block's tokens
  };

  void Add(const BlockId& id, std::span<const uint32_t> tokens);
  // With the tokens that were added.
  void Remove(const BlockId& id, std::span<const uint32_t> tokens);

  // The hash of every gram of the tokens, by its first token.
  static std::vector<uint64_t> HashesOf(std::span<const uint32_t> tokens);

  // Candidates for a gram: equal hashes, which a clever client can bring about for unequal tokens.
  std::span<const Place> Find(uint64_t hash) const;

  size_t grams() const { return places_.size(); }

 private:
  size_t FilterBit(uint64_t hash) const { return hash & (filter_.size() * 64 - 1); }
  // Enlarges the filter to what the grams need; marks all of them again.
  void GrowFilter();

  absl::flat_hash_map<uint64_t, absl::InlinedVector<Place, 1>> places_;
  // One bit for every hash value modulo its size, a power of two: most grams of a new text are
  // stored nowhere, and this says so without a walk to main memory. Bits of removed grams stay
  // until it grows; they cost a look.
  std::vector<uint64_t> filter_ = std::vector<uint64_t>(1024);
};

}  // namespace strata::kvstore
