// Names of state blocks.
//
// A block holds the state rows of `block_tokens` consecutive tokens. Its id hashes everything that
// its bytes depend on: the model, the layout of the state, the tenant, and every token from the
// start of the sequence to the end of the block, as a chain:
//
//   id(-1) = H(fingerprint, layout, tenant)        id(i) = H(id(i-1), tokens of block i)
//
// with H = XXH3-128. Two sequences share exactly the ids of their common prefix of whole blocks.
// State that was put together from another conversation's (a splice) is approximate, and so is all
// that was computed behind it. Such blocks carry a lineage mark: the first of them is named
// H(mark(id(i-1)), tokens) and everything behind it follows from that name, so they share no id
// with exact blocks of the same tokens.
//
// State behind the last whole block, and state that is valid at one position only, is held by
// checkpoints. One of `tokens` tokens behind block i is named H(mark'(id(i), lineage), tokens): no
// block has that name, not even one of the same tokens, and nothing follows from it.
//
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

// State that was computed approximately (with experts in place of those the router chose) is kept
// apart from exact state by the tenant's name: an exact request never finds it.
std::string ApproximateTenant(std::string_view tenant);
bool IsApproximate(std::string_view tenant);

// The id of the block that holds `tokens` and follows `parent`, both of one lineage.
BlockId ChildId(const BlockId& parent, std::span<const uint32_t> tokens);

// What a block's state may serve: exact state everybody, the others only who accepts as much. A
// block is never more exact than the one before it.
enum class Lineage : uint8_t { kExact = 0, kSafe = 1, kFast = 2 };

// The same for a block of another lineage than its parent.
BlockId ChildId(const BlockId& parent, Lineage parent_lineage, Lineage lineage,
                std::span<const uint32_t> tokens);

// The id of the checkpoint `tokens` (fewer than a block's, perhaps none) behind the block `parent`.
BlockId CheckpointId(const BlockId& parent, Lineage lineage, std::span<const uint32_t> tokens);

}  // namespace strata::state
