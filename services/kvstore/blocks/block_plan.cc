// BlockStore::Plan: what of a prompt is stored.
#include <algorithm>
#include <optional>
#include <utility>

#include "services/kvstore/blocks/block_store.h"

namespace strata::kvstore {
namespace {

// A use is written down only if the last one noted is older: plans touch hundreds of blocks.
constexpr uint64_t kTouchResolutionMs = 60'000;
// Tokens that a plan tells of what is stored instead of the prompt's: a line or two.
constexpr size_t kShown = 64;
// Of a block or tail that is cut at least this share is used.
constexpr uint32_t kLeastShare = 8;

uint32_t EndOf(std::span<const PlannedBlock> blocks) {
  return blocks.empty() ? 0 : blocks.back().first_token + blocks.back().tokens;
}

}  // namespace

StatePlan BlockStore::Plan(const PlanQuery& query) {
  const std::lock_guard lock(mutex_);
  StatePlan plan;
  const std::vector<PlannedBlock> path =
      LongestPrefix(query, query.root, state::Lineage::kExact, 0);
  plan.blocks = path;
  PlanTail(query, plan);
  if (query.move) plan.runs = PlanRuns(query, plan.reused_tokens);
  for (const PlannedRun& run : plan.runs) plan.moved_tokens += run.tokens;
  Explain(query, path, plan);
  if (query.dry_run) return plan;

  const uint64_t now = Now();
  NoteUse(plan.blocks, now);
  NoteUseOfTail(plan, now);
  for (const PlannedRun& run : plan.runs) NoteUse(run.blocks, now);
  ++counters_.plans;
  counters_.plan_hits += plan.reused_tokens == 0 && plan.runs.empty() ? 0 : 1;
  counters_.planned_tokens += plan.reused_tokens;
  counters_.moved_tokens += plan.moved_tokens;
  return plan;
}

PlannedBlock BlockStore::Planned(const BlockId& id) const {
  const BlockRecord& record = *index_.Get(id);
  return {id,           record.first_token, static_cast<uint32_t>(record.tokens.size()),
          record.bytes, record.lineage,     record.kind != Kind::kBlock};
}

void BlockStore::PlanTail(const PlanQuery& query, StatePlan& plan) const {
  const auto rest = [&] { return query.tokens.subspan(EndOf(plan.blocks)); };
  const auto last = [&] { return plan.blocks.empty() ? query.root : plan.blocks.back().id; };
  if (query.cut == 0) {
    for (;; plan.blocks.pop_back()) {
      if (const auto id = index_.LongestCheckpoint(last(), rest(), query.accept)) {
        plan.tail = Planned(*id);
        plan.reused_tokens = plan.tail->first_token + plan.tail->tokens;
        return;
      }
      if (plan.blocks.empty()) return;
    }
  }
  plan.reused_tokens = EndOf(plan.blocks);
  const BlockIndex::Start start = index_.LongestStart(last(), rest(), query.accept);
  const auto tokens = static_cast<uint32_t>(start.tokens) / query.cut * query.cut;
  if (tokens == 0 || kLeastShare * tokens < index_.Get(*start.child)->tokens.size()) return;
  plan.tail = Planned(*start.child);
  plan.reused_tokens += tokens;
}

void BlockStore::Explain(const PlanQuery& query, std::span<const PlannedBlock> prefix,
                         StatePlan& plan) const {
  const BlockId last = prefix.empty() ? query.root : prefix.back().id;
  const uint32_t end = EndOf(prefix);
  const BlockIndex::Start start =
      index_.LongestStart(last, query.tokens.subspan(end), query.accept);
  plan.first_different_token = end + static_cast<uint32_t>(start.tokens);
  if (start.child || !prefix.empty()) {
    plan.conversation = index_.LastUsedEnd(start.child.value_or(last));
  } else if (!plan.runs.empty()) {
    const auto longest =
        std::max_element(plan.runs.begin(), plan.runs.end(),
                         [](const auto& a, const auto& b) { return a.tokens < b.tokens; });
    plan.conversation = index_.LastUsedEnd(longest->blocks.back().id);
    return;
  }
  if (!plan.conversation) return;
  // Upwards from its end: what it holds behind the first difference.
  std::vector<const BlockRecord*> path;
  for (BlockId id = *plan.conversation; id != last;) {
    const BlockRecord* record = index_.Get(id);
    if (record == nullptr) break;
    path.push_back(record);
    id = record->parent;
  }
  for (auto it = path.rbegin(); it != path.rend() && plan.stored_instead.size() < kShown; ++it) {
    for (size_t i = 0; i < (*it)->tokens.size() && plan.stored_instead.size() < kShown; ++i) {
      if ((*it)->first_token + i >= plan.first_different_token) {
        plan.stored_instead.push_back((*it)->tokens[i]);
      }
    }
  }
}

const BlockRecord* BlockStore::FindEqual(const BlockId& id,
                                         std::span<const uint32_t> tokens) const {
  const BlockRecord* record = index_.Get(id);
  if (record == nullptr) return nullptr;
  const auto& own = record->tokens;
  return std::equal(own.begin(), own.end(), tokens.begin(), tokens.end()) ? record : nullptr;
}

std::vector<PlannedBlock> BlockStore::LongestPrefix(const PlanQuery& query, BlockId parent,
                                                    state::Lineage lineage, size_t at) const {
  std::vector<PlannedBlock> path;
  const auto reach = [&](const std::vector<PlannedBlock>& blocks) {
    return blocks.empty() ? at : EndOf(blocks);
  };
  const uint32_t count = query.block_tokens;
  struct Fork {
    size_t length;  // of the path before it
    std::vector<PlannedBlock> blocks;
  };
  std::optional<Fork> best_fork;
  for (size_t first = at; count > 0 && first + count <= query.tokens.size(); first += count) {
    const std::span<const uint32_t> own = query.tokens.subspan(first, count);
    for (const auto other : {state::Lineage::kSafe, state::Lineage::kFast}) {
      if (other <= lineage || other > query.accept) continue;
      const BlockId id = state::ChildId(parent, lineage, other, own);
      const BlockRecord* record = FindEqual(id, own);
      if (record == nullptr) continue;
      Fork fork{path.size(), {{id, static_cast<uint32_t>(first), count, record->bytes, other}}};
      const auto rest = LongestPrefix(query, id, other, first + count);
      fork.blocks.insert(fork.blocks.end(), rest.begin(), rest.end());
      if (!best_fork || reach(fork.blocks) > reach(best_fork->blocks)) best_fork = std::move(fork);
    }
    const BlockId id = state::ChildId(parent, own);
    const BlockRecord* record = FindEqual(id, own);
    if (record == nullptr) break;
    path.push_back({id, static_cast<uint32_t>(first), count, record->bytes, lineage});
    parent = id;
  }
  if (best_fork && reach(best_fork->blocks) > reach(path)) {
    path.resize(best_fork->length);
    path.insert(path.end(), best_fork->blocks.begin(), best_fork->blocks.end());
  }
  return path;
}

std::vector<PlannedRun> BlockStore::PlanRuns(const PlanQuery& query, uint32_t known) const {
  std::vector<PlannedRun> runs;
  const auto seeds = seeds_.find(query.root);
  if (seeds == seeds_.end()) return runs;
  for (const MovedRun& moved :
       Align(seeds->second, index_, query.tokens, known, query.line_starts, query.align)) {
    PlannedRun run{moved.first_token, moved.tokens, moved.old_first_token, {}};
    for (const BlockId& id : moved.blocks) {
      run.blocks.push_back(Planned(id));
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

void BlockStore::NoteUse(std::span<const PlannedBlock> blocks, uint64_t now) {
  for (const PlannedBlock& block : blocks) {
    if (now - index_.Get(block.id)->last_used_ms > kTouchResolutionMs) used_.insert(block.id);
    index_.CountUse(block.id, now);
  }
  // Its ancestors are no leaves.
  if (!blocks.empty()) index_.Protect(blocks.back().id, now);
}

void BlockStore::NoteUseOfTail(const StatePlan& plan, uint64_t now) {
  if (!plan.tail) return;
  // What was cut did not come back: the conversation goes on differently.
  if (plan.tail->first_token + plan.tail->tokens == plan.reused_tokens) {
    NoteUse(std::span(&*plan.tail, 1), now);
  } else {
    index_.Touch(plan.tail->id, now);
    index_.Protect(plan.tail->id, now);
  }
}

}  // namespace strata::kvstore
