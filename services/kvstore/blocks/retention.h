// What a block is worth keeping for.
//
//   value = tokens saved x likelihood of return / bytes
//
// The likelihood that text comes back falls with the time since it was last used, roughly as one
// over it: what was used an hour ago comes back in the next hour about as likely as what was used a
// minute ago in the next minute. On top of that counts what the text was: the end of a
// conversation that went on differently (superseded) almost never comes back; text that never
// did (titles, probes, and any conversation's first turn) less likely than a conversation that
// already returned. So a stream of side requests pushes out side requests, and a main conversation
// only when they fill the store within a twentieth of the time since its last turn.
//
// A checkpoint with components that cannot be cut saves all tokens before it. It serves the turn
// that goes on from it; of an older one in the same conversation each later one halves the
// likelihood. The first of a conversation does not grow old in this way, the next conversation may
// begin like it; nor does one that two prompts came back to.
#pragma once

#include <compare>
#include <cstdint>

namespace strata::kvstore {

enum class Standing : uint8_t { kSuperseded = 0, kOnce = 1, kReturned = 2 };

// Blocks of one kind are ordered by their last use alone.
struct RetentionKind {
  Standing standing = Standing::kOnce;
  int16_t density = 0;  // tokens per byte, as a rounded logarithm
  uint8_t older = 0;    // checkpoints that followed

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the comparison with 0 for a pointer
  auto operator<=>(const RetentionKind&) const = default;
};

RetentionKind KindOf(Standing standing, uint64_t tokens, uint64_t bytes, uint8_t older = 0);

// Comparable among all blocks; the least goes first.
double RetentionValue(const RetentionKind& kind, uint64_t age_ms);

}  // namespace strata::kvstore
