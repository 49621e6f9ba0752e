// One request while the engine works on it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/state/block_id.h"
#include "services/compute/engine/response_sink.h"
#include "services/compute/engine/sampler.h"
#include "services/compute/engine/scheduler.h"
#include "services/compute/engine/splice.h"
#include "services/compute/models/prompt_routing.h"
#include "strata/v1/compute.pb.h"

namespace strata::compute {

using Clock = std::chrono::steady_clock;

struct Sequence {
  SequenceId id = 0;
  std::string request_id;

  std::vector<uint32_t> tokens;  // prompt, then what was generated
  int prompt_tokens = 0;         // of `tokens`; includes resumed ones
  int computed = 0;              // number of tokens whose K/V exist: the first ones, unless spliced
  int max_total_tokens = 0;
  std::vector<int32_t> pages;

  // Generation.
  v1::GenerateRequest request;
  std::shared_ptr<GenerateSink> sink;
  std::optional<Sampler> sampler;
  int generated = 0;
  int cached_tokens = 0;

  // How the prompt is read, and what that did. `unmet` has a count for every expert (Step::unmet).
  RoutingRule routing;
  RoutingTally routed;
  std::vector<uint32_t> unmet;

  // Scoring (sink is null then).
  v1::ScoreRequest score;
  std::shared_ptr<ScoreSink> score_sink;

  // Saving: blocks [0, saved_blocks) of this sequence are known to the store.
  int saved_blocks = 0;
  state::BlockId last_block;
  state::Lineage lineage = state::Lineage::kExact;  // of last_block

  size_t shared_blocks = 0;    // at the prompt's start that were in memory
  size_t restored_blocks = 0;  // that came from the store, the prefix's and the runs'
  SpliceState splice;

  Clock::time_point submitted, admitted, first_token;
  uint64_t hits_before = 0, misses_before = 0;

  bool scoring() const { return score_sink != nullptr; }
  int total() const { return static_cast<int>(tokens.size()); }
  // Position of the first generated token, by this run or the one that it resumes.
  int answer_start() const { return prompt_tokens - static_cast<int>(request.resumed_tokens()); }
  // Tokens before which all K/V exist.
  int frontier() const {
    return splice.next_unread < splice.unread.size() ? splice.unread[splice.next_unread] : computed;
  }
  // Position of the `i`-th row that is computed next.
  int NextPosition(int i) const {
    return splice.next_unread < splice.unread.size()
               ? splice.unread[splice.next_unread + static_cast<size_t>(i)]
               : computed + i;
  }
};

}  // namespace strata::compute
