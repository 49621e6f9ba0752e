// Names of state blocks.
//
// A block holds the state rows of `block_tokens` consecutive tokens. Its id hashes everything that
// its bytes depend on: the model, the layout of the state, the tenant, and every token from the
// start of the sequence to the end of the block, as a chain:
//
//   id(-1) = H(fingerprint, layout, tenant)        id(i) = H(id(i-1), tokens of block i)
//
// with H = XXH3-128. Two sequences share exactly the ids of their common prefix of whole blocks.
// The hash is not cryptographic: whoever reuses a block compares the stored tokens as well.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace strata::state {

struct BlockId {
  std::array<uint8_t, 16> bytes{};

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the comparison with 0 for a pointer
  auto operator<=>(const BlockId&) const = default;
  std::string ToString() const { return {bytes.begin(), bytes.end()}; }  // raw, for messages
  std::string ToHex() const;

  template <typename H>
  friend H AbslHashValue(H hash, const BlockId& id) {
    return H::combine_contiguous(std::move(hash), id.bytes.data(), id.bytes.size());
  }
};

// Empty if `raw` has not 16 bytes.
std::optional<BlockId> BlockIdFromRaw(std::string_view raw);

// The id before the first block of every sequence of this model, layout and tenant.
BlockId RootId(std::string_view fingerprint_hash, std::string_view layout_hash,
               std::string_view tenant);

// The id of the block that holds `tokens` and follows `parent`.
BlockId ChildId(const BlockId& parent, std::span<const uint32_t> tokens);

}  // namespace strata::state
