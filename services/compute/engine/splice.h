// What the moved runs of a restore plan mean for one sequence: which rows of which block go where,
// which moved tokens are read again, and in what order the rest of the prompt is read. Positions
// only: no tensors, no bytes.
#pragma once

#include <climits>
#include <cstdint>
#include <span>
#include <vector>

#include "common/state/block_id.h"
#include "strata/v1/kvstore.pb.h"

#include "absl/status/statusor.h"

namespace strata::compute {

struct TokenRange {
  int first = 0;
  int last = 0;  // behind the last token
  bool operator==(const TokenRange&) const = default;
};

// A block's share in a run: its rows [first_row, first_row + rows) go to the tokens from `position`
// on, and their keys are turned by `shift` positions.
struct MovedRows {
  int first_row = 0;
  int rows = 0;
  int position = 0;
  int shift = 0;
  bool operator==(const MovedRows&) const = default;
};

// The shares of all blocks of the plan's runs, in the order in which the store sends them.
// InvalidArgument if the runs overlap, reach into the prefix or to the prompt's last token, or are
// not covered by their blocks of `block_tokens`.
absl::StatusOr<std::vector<MovedRows>> MovedRowsOf(const v1::RestorePlan& plan, int prompt_tokens,
                                                   int block_tokens);

// Appends to ascending ranges; touching ones become one.
void AppendRange(std::vector<TokenRange>& ranges, TokenRange range);
int TokensIn(std::span<const TokenRange> ranges);

// The moved tokens to read again, ascending: of every range the first ones (they lean most on the
// text before them, which is another one now), then those with the largest deviation, in all at
// most `budget` (0 to 1) of the moved tokens. `deviations` has one value for each moved token in
// order.
std::vector<int32_t> ChooseAgain(std::span<const TokenRange> moved,
                                 std::span<const float> deviations, double budget);

// All positions of [known, prompt_tokens) that were not moved or are to be read again, ascending.
std::vector<int32_t> PositionsToRead(int known, int prompt_tokens,
                                     std::span<const TokenRange> moved,
                                     std::span<const int32_t> again);

// A sequence's splice from its first restored block to the end of its prompt.
struct SpliceState {
  std::vector<MovedRows> pieces;  // what the plan promises, block by block
  std::vector<TokenRange> moved;  // what has come
  // Comparing the moved keys with fresh ones: tokens [probe_next, probe_last) are to do.
  bool probing = false;
  int probe_next = 0;
  int probe_last = 0;
  std::vector<float> deviations;
  // Prompt positions to read, in order; those before next_unread are read. Empty without a splice:
  // then everything from the prefix's end on is read in order.
  std::vector<int32_t> unread;
  size_t next_unread = 0;
  // Everything from the first moved token on that was not read again is approximate.
  int first_spliced = INT_MAX;
  int spliced_tokens = 0;  // moved and not read again, or restored from a spliced conversation
  state::Lineage lineage = state::Lineage::kExact;
};

}  // namespace strata::compute
