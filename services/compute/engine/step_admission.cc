// StepLoop's way from a request to a sequence that is read: pages, state that is shared or
// restored, routing.
#include <algorithm>
#include <optional>
#include <utility>

#include "services/compute/engine/step_loop.h"

namespace strata::compute {

PromptRouting DefaultRouting(const Engine::Parts& parts, const EngineOptions& options) {
  if (options.prompt_routing) return *options.prompt_routing;
  return parts.experts == nullptr || parts.experts->HoldsAll() ? PromptRouting::kFull
                                                               : PromptRouting::kGuarded;
}

void StepLoop::Handle(const RestoredBlockMessage& message) {
  restorer_->BlockConsumed();
  Sequence* sequence = Find(message.id);
  if (sequence == nullptr) return;
  // What was in memory was not asked of the store.
  const auto prefix = static_cast<size_t>(sequence->request.restore().blocks_size());
  const size_t index = std::min(prefix, sequence->shared_blocks) + sequence->restored_blocks++;
  const size_t runs = sequence->splice.pieces.size();
  const v1::RestorePlan& plan = sequence->request.restore();
  if (index == prefix + runs && plan.has_tail()) {
    TakeRows(*sequence, plan.tail(),
             static_cast<int>(plan.reused_tokens() - plan.tail().first_token()), message.bytes);
    return;
  }
  if (message.bytes.size() != parts_.kv->BlockBytes()) return;
  if (index < prefix) {
    TakePrefixBlock(*sequence, static_cast<int>(index), message.bytes);
  } else if (index - prefix < runs) {
    splicer_->TakeBlock(*sequence, index - prefix, message.bytes);
  }
}

void StepLoop::TakeRows(Sequence& sequence, const v1::BlockRef& ref, int rows,
                        std::span<const std::byte> bytes) {
  const int first = sequence.saved_blocks * KvCache::kPageTokens;
  // What is before it may have been lost, or more may have been in memory.
  if (sequence.computed != first || ref.first_token() != static_cast<uint32_t>(first)) return;
  if (bytes.size() != ref.tokens() * parts_.kv->shape().TokenBytes()) return;
  // The last prompt token is always computed: its logits are needed.
  rows = std::min({rows, static_cast<int>(ref.tokens()), sequence.prompt_tokens - 1 - first});
  if (rows <= 0) return;
  parts_.kv->WriteRows(sequence.pages, first, bytes, 0, rows);
  sequence.computed += rows;
  const auto lineage = static_cast<state::Lineage>(ref.lineage());
  if (lineage == state::Lineage::kExact) return;
  SpliceState& splice = sequence.splice;
  splice.first_spliced = first;
  splice.lineage = std::max(splice.lineage, lineage);
  splice.spliced_tokens += rows;
}

void StepLoop::TakePrefixBlock(Sequence& sequence, int block, std::span<const std::byte> bytes) {
  // A block behind one that could not be used is of no use either.
  if (block * KvCache::kPageTokens != sequence.computed) return;
  const auto first = static_cast<size_t>(block) * KvCache::kPageTokens;
  if (static_cast<int>(first) + KvCache::kPageTokens >= sequence.prompt_tokens) {
    TakeRows(sequence, sequence.request.restore().blocks(block), KvCache::kPageTokens, bytes);
    return;
  }
  parts_.kv->WritePage(sequence.pages[static_cast<size_t>(block)], bytes);
  sequence.computed += KvCache::kPageTokens;
  sequence.saved_blocks = block + 1;
  const auto lineage =
      static_cast<state::Lineage>(sequence.request.restore().blocks(block).lineage());
  sequence.last_block =
      state::ChildId(sequence.last_block, sequence.lineage, lineage,
                     std::span(sequence.tokens).subspan(first, KvCache::kPageTokens));
  sequence.lineage = lineage;
  if (lineage != state::Lineage::kExact) sequence.splice.spliced_tokens += KvCache::kPageTokens;
  if (options_.share_kv && MayKeepState(sequence)) {
    parts_.kv->Publish(sequence.pages, static_cast<size_t>(block), sequence.last_block,
                       std::span(sequence.tokens).subspan(first, KvCache::kPageTokens));
  }
}

void StepLoop::Handle(const RestoreDoneMessage& message) {
  --restores_;
  Sequence* sequence = Find(message.id);
  if (sequence == nullptr) return;
  splicer_->Begin(*sequence);
  StartReading(*sequence);
}

void StepLoop::StartReading(Sequence& sequence) {
  sequence.cached_tokens = sequence.computed;
  scheduler_.StartReading(sequence.id, sequence.computed);
  SendProgress(sequence);
}

bool StepLoop::MayKeepState(const Sequence& sequence) const {
  // Approximate rows never enter the lineage of exact ones.
  return sequence.request.save_state() &&
         (sequence.routing.mode == PromptRouting::kFull ||
          state::IsApproximate(sequence.request.restore().key().tenant()));
}

void StepLoop::SharePrefix(Sequence& sequence, size_t most) {
  const v1::RestorePlan& plan = sequence.request.restore();
  const auto planned = static_cast<size_t>(plan.blocks_size());
  // Behind its prefix a plan with runs has other ideas.
  if (plan.runs_size() > 0) most = std::min(most, planned);
  state::BlockId id = sequence.last_block;
  state::Lineage lineage = sequence.lineage;
  size_t& shared = sequence.shared_blocks;
  for (; shared < most; ++shared) {
    const auto tokens =
        std::span(sequence.tokens).subspan(shared * KvCache::kPageTokens, KvCache::kPageTokens);
    const bool known = shared < planned;
    const auto next =
        known ? static_cast<state::Lineage>(plan.blocks(static_cast<int>(shared)).lineage())
              : lineage;
    id = state::ChildId(id, lineage, next, tokens);
    const std::optional<int32_t> page = parts_.kv->Share(id, tokens);
    if (!page) break;
    sequence.pages.push_back(*page);
    lineage = next;
    if (lineage != state::Lineage::kExact) sequence.splice.spliced_tokens += KvCache::kPageTokens;
    const int end = static_cast<int>(shared + 1) * KvCache::kPageTokens;
    sequence.computed = std::min(end, sequence.prompt_tokens - 1);
    // What the store does not know is saved (again): without it nothing behind it can be.
    if (known && end < sequence.prompt_tokens) {
      sequence.saved_blocks = static_cast<int>(shared) + 1;
      sequence.last_block = id;
      sequence.lineage = lineage;
    }
  }
}

bool StepLoop::ReservePages(Sequence& sequence) {
  // The last prompt token is always computed: its logits are needed. If its page is shared, into a
  // copy, for which there has to be room.
  const int whole = sequence.prompt_tokens / KvCache::kPageTokens;
  const int before_last = (sequence.prompt_tokens - 1) / KvCache::kPageTokens;
  return TryReserve(sequence, whole) || (before_last < whole && TryReserve(sequence, before_last));
}

bool StepLoop::TryReserve(Sequence& sequence, int most_shared) {
  sequence.last_block = state::RootId(parts_.fingerprint_hash, parts_.layout_hash,
                                      sequence.request.restore().key().tenant());
  ChooseRouting(sequence);
  if (options_.share_kv && !sequence.scoring() && MayKeepState(sequence)) {
    SharePrefix(sequence, static_cast<size_t>(most_shared));
  }
  const auto shared = static_cast<int>(sequence.shared_blocks);
  const int missing = KvCache::PagesFor(sequence.max_total_tokens) - shared;
  const bool copy = shared * KvCache::kPageTokens == sequence.prompt_tokens;
  if (parts_.kv->free_pages() >= missing + (copy ? 1 : 0)) {
    if (copy) parts_.kv->MakeOwn(sequence.pages, sequence.shared_blocks - 1);
    parts_.kv->Take(missing, sequence.pages);
    return true;
  }
  parts_.kv->GiveBack(sequence.pages);
  sequence.shared_blocks = 0;
  sequence.computed = 0;
  sequence.saved_blocks = 0;
  sequence.lineage = state::Lineage::kExact;
  sequence.splice.spliced_tokens = 0;
  return false;
}

void StepLoop::AdmitWaiting() {
  while (const std::optional<SequenceId> id = scheduler_.Admit(
             NowSeconds(), [this](SequenceId next) { return ReservePages(*Find(next)); })) {
    Sequence& sequence = *Find(*id);
    sequence.admitted = Clock::now();
    if (parts_.experts != nullptr) {
      const ExpertCounters counters = parts_.experts->counters();
      sequence.hits_before = counters.hits;
      sequence.misses_before = counters.misses;
    }
    v1::RestorePlan missing = sequence.request.restore();
    const auto in_memory = static_cast<int>(sequence.shared_blocks);
    missing.mutable_blocks()->DeleteSubrange(0, std::min(in_memory, missing.blocks_size()));
    if (static_cast<int>(missing.tail().first_token()) < sequence.computed) missing.clear_tail();
    if (restorer_ && (missing.blocks_size() > 0 || missing.runs_size() > 0 || missing.has_tail())) {
      ++restores_;
      restorer_->Start(*id, std::move(missing), sequence.request_id);
      SendProgress(sequence);
    } else {
      StartReading(sequence);
    }
  }
}

void StepLoop::ChooseRouting(Sequence& sequence) const {
  if (parts_.experts == nullptr || sequence.scoring()) return;  // kFull
  const v1::GenerateRequest& request = sequence.request;
  switch (request.prompt_routing()) {
    case v1::FULL:
      sequence.routing.mode = PromptRouting::kFull;
      break;
    case v1::GUARDED:
      sequence.routing.mode = PromptRouting::kGuarded;
      break;
    case v1::RESIDENT:
      sequence.routing.mode = PromptRouting::kResident;
      break;
    default:
      sequence.routing.mode = DefaultRouting(parts_, options_);
  }
  sequence.routing.bound = request.prompt_routing_bound() > 0 ? request.prompt_routing_bound()
                                                              : options_.prompt_routing_bound;
  sequence.routing.budget = request.prompt_routing_budget() > 0 ? request.prompt_routing_budget()
                                                                : options_.prompt_routing_budget;
  if (sequence.routing.mode == PromptRouting::kGuarded) {
    const ModelInfo& info = parts_.model->info();
    sequence.unmet.assign(static_cast<size_t>(info.layers) * static_cast<size_t>(info.experts), 0);
  }
}

}  // namespace strata::compute
