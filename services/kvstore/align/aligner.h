// Which parts of a prompt are moved from stored conversations, and which are read.
//
// 1. Every stored text that the prompt repeats is found by its grams (SeedIndex) and extended in
//    both directions, token by token, to a maximal match: forwards along the children that go on
//    like the prompt, backwards along the parents.
// 2. Over the prompt's line borders p_0 < p_1 < ... a shortest path chooses what to do with each
//    line: cost(p_j) = min(cost(p_j-1) + tokens of the line, min_i cost(p_i) + run_cost) where the
//    lines between p_i and p_j lie in one match and have min_run tokens or more.
//
// So runs consist of whole lines, and nothing shorter than min_run is moved: a short run costs more
// in error and bookkeeping than reading it. The choice is the best one among the matches found;
// where several stored texts overlap, some of up to two grams may be overlooked at a run's ends.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/kvstore/align/corpus.h"
#include "services/kvstore/align/seed_index.h"

namespace strata::kvstore {

struct AlignOptions {
  uint32_t min_run = 64;
  // Runs start and end at multiples of this, in the prompt and where they come from (rows of the
  // state that stand for several tokens cannot be split).
  uint32_t stride = 1;
  // What moving a run costs, in tokens read: its first tokens are usually read again.
  uint32_t run_cost = 16;
  // Runs that have fewer tokens than this together are not moved at all.
  uint32_t min_moved = 0;
};

struct MovedRun {
  uint32_t first_token = 0;  // in the prompt
  uint32_t tokens = 0;
  uint32_t old_first_token = 0;  // in the conversation it comes from
  // Consecutive blocks that hold these tokens; the first one holds old_first_token.
  std::vector<BlockId> blocks;
};

// The runs to move into prompt[known, size - 1), in order, without overlap; the tokens before
// `known` are there already, and the last token is always read. `line_starts` are the positions of
// tokens that begin a line, ascending; no lines, no runs. Takes milliseconds for 100,000 tokens.
std::vector<MovedRun> Align(const SeedIndex& seeds, const Corpus& corpus,
                            std::span<const uint32_t> prompt, uint32_t known,
                            std::span<const uint32_t> line_starts, const AlignOptions& options);

}  // namespace strata::kvstore
