#include "services/compute/engine/step_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"

namespace strata::compute {
namespace {

using std::chrono::milliseconds;

// How long a step waits for an expert store that is being restarted before its requests fail.
constexpr milliseconds kExpertStorePatience{60'000};
constexpr milliseconds kExpertStoreRetry{500};
constexpr size_t kMaxDistributionBytes = 1 << 20;

// Experts promoted after a prompt was read; more would still be on their way when they are needed.
constexpr size_t kMostPromotions = 32;

double Milliseconds(Clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

void SetProbabilities(const TokenProbability& chosen, const std::vector<TokenProbability>& likely,
                      v1::GeneratedToken& token) {
  token.set_id(static_cast<uint32_t>(chosen.id));
  token.set_logprob(chosen.logprob);
  for (const TokenProbability& t : likely) {
    v1::TokenLogprob& candidate = *token.add_top();
    candidate.set_id(static_cast<uint32_t>(t.id));
    candidate.set_logprob(t.logprob);
  }
}

}  // namespace

PromptRouting DefaultRouting(const Engine::Parts& parts, const EngineOptions& options) {
  if (options.prompt_routing) return *options.prompt_routing;
  return parts.experts == nullptr || parts.experts->HoldsAll() ? PromptRouting::kFull
                                                               : PromptRouting::kGuarded;
}

v1::PromptRouting ToProto(PromptRouting routing) {
  switch (routing) {
    case PromptRouting::kGuarded:
      return v1::GUARDED;
    case PromptRouting::kResident:
      return v1::RESIDENT;
    default:
      return v1::FULL;
  }
}

StepLoop::StepLoop(const Engine::Parts& parts, const EngineOptions& options, Inbox& inbox)
    : parts_(parts),
      options_(options),
      inbox_(inbox),
      scheduler_({options.max_sequences, options.chunk_tokens}) {
  if (parts.store != nullptr) restorer_.emplace(*parts.store, inbox);
  PublishStatus();
}

absl::StatusOr<std::unique_ptr<StepLoop>> StepLoop::Create(const Engine::Parts& parts,
                                                           const EngineOptions& options,
                                                           Inbox& inbox) {
  auto loop = std::unique_ptr<StepLoop>(new StepLoop(parts, options, inbox));
  const int rows = options.chunk_tokens + options.max_sequences;
  STRATA_ASSIGN_OR_RETURN(
      loop->activations_,
      parts.backend->Allocate(parts.model->ScratchBytes(rows),
                              absl::StrCat("activations of ", rows, " tokens a step")));
  loop->scratch_.emplace(std::span(loop->activations_->data(), loop->activations_->size()));
  loop->splicer_.emplace(parts, *loop->scratch_, options.chunk_tokens, options.splice_budget);
  const int64_t vocab = parts.model->info().vocab_size;
  const int logit_rows = std::max(options.max_sequences + 1, kScoreRows);
  STRATA_ASSIGN_OR_RETURN(loop->logits_memory_,
                          parts.backend->Allocate(Scratch::Bytes(logit_rows, vocab), "logits"));
  loop->logits_ = Tensor{TensorType::kF32, logit_rows, vocab,
                         static_cast<size_t>(vocab) * sizeof(float), loop->logits_memory_->data()};
  loop->host_logits_.resize(static_cast<size_t>(logit_rows * vocab));
  return loop;
}

void StepLoop::Run() {
  for (;;) {
    AdmitWaiting();
    const StepPlan plan = scheduler_.Plan(NowSeconds());
    PublishStatus();
    if (!HandleMessages(/*wait=*/plan.empty())) break;
    // Messages may have removed sequences of the plan: plan again, it is cheap.
    const StepPlan current = scheduler_.Plan(NowSeconds());
    if (!current.empty()) RunPlan(current);
  }
  restorer_.reset();
  while (!sequences_.empty()) {
    Finish(sequences_.begin()->first, absl::CancelledError("the compute daemon stops"), {});
  }
}

double StepLoop::NowSeconds() const {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

Sequence* StepLoop::Find(SequenceId id) {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : it->second.get();
}

bool StepLoop::HandleMessages(bool wait) {
  for (Message& message : inbox_.Take(wait)) {
    if (std::holds_alternative<StopMessage>(message)) return false;
    std::visit(
        [this](auto& m) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(m)>, StopMessage>) {
            Handle(std::move(m));
          }
        },
        message);
  }
  return true;
}

void StepLoop::Handle(SubmitMessage message) {
  Sequence& sequence = *message.sequence;
  splicer_->Prepare(sequence);
  int reusable = static_cast<int>(sequence.request.restore().reused_tokens());
  for (const MovedRows& piece : sequence.splice.pieces) reusable += piece.rows;
  scheduler_.Enqueue({sequence.id, sequence.request.client(), sequence.prompt_tokens, reusable},
                     NowSeconds());
  const SequenceId id = sequence.id;
  sequences_.emplace(id, std::move(message.sequence));
  SendProgress(sequence);
}

void StepLoop::Handle(const CancelMessage& message) {
  if (Find(message.id) == nullptr) return;
  if (restorer_) restorer_->Cancel(message.id);
  Finish(message.id, absl::CancelledError("the request was cancelled"), {});
}

void StepLoop::Handle(const RestoredBlockMessage& message) {
  restorer_->BlockConsumed();
  Sequence* sequence = Find(message.id);
  if (sequence == nullptr) return;
  // What was in memory was not asked of the store.
  const auto prefix = static_cast<size_t>(sequence->request.restore().blocks_size());
  const size_t index = std::min(prefix, sequence->shared_blocks) + sequence->restored_blocks++;
  if (message.bytes.size() != parts_.kv->BlockBytes()) return;
  if (index < prefix) {
    TakePrefixBlock(*sequence, static_cast<int>(index), message.bytes);
  } else if (index - prefix < sequence->splice.pieces.size()) {
    splicer_->TakeBlock(*sequence, index - prefix, message.bytes);
  }
}

void StepLoop::TakePrefixBlock(Sequence& sequence, int block, std::span<const std::byte> bytes) {
  // A block behind one that could not be used is of no use either.
  if (block * KvCache::kPageTokens != sequence.computed) return;
  const auto first = static_cast<size_t>(block) * KvCache::kPageTokens;
  // The last prompt token is always computed: its logits are needed.
  if (static_cast<int>(first) + KvCache::kPageTokens >= sequence.prompt_tokens) return;
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
    if (restorer_ && (missing.blocks_size() > 0 || missing.runs_size() > 0)) {
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

void StepLoop::PromoteUnmet(Sequence& sequence) {
  const auto experts = static_cast<size_t>(parts_.model->info().experts);
  promotions_.clear();
  for (size_t i = 0; i < sequence.unmet.size(); ++i) {
    if (sequence.unmet[i] == 0) continue;
    promotions_.push_back(
        {sequence.unmet[i],
         {static_cast<uint16_t>(i / experts), static_cast<uint16_t>(i % experts)}});
  }
  sequence.unmet = {};
  const size_t count = std::min(kMostPromotions, promotions_.size());
  std::partial_sort(promotions_.begin(), promotions_.begin() + static_cast<ptrdiff_t>(count),
                    promotions_.end(),
                    [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<ExpertId> wanted;
  for (size_t i = 0; i < count; ++i) wanted.push_back(promotions_[i].second);
  parts_.experts->Promote(wanted);
}

void StepLoop::CutAtAnswer(ScheduledRow& chunk) {
  const Sequence& sequence = *Find(chunk.sequence);
  if (sequence.routing.mode == PromptRouting::kFull) return;
  int before = 0;
  while (before < chunk.count && sequence.NextPosition(before) < sequence.answer_start()) ++before;
  if (before > 0) chunk.count = before;
}

void StepLoop::RunPlan(const StepPlan& wanted) {
  StepPlan plan = wanted;
  if (plan.chunk) {
    Sequence& sequence = *Find(plan.chunk->sequence);
    if (sequence.splice.probing) {
      // Before any of its prompt can be read it must be known what.
      plan.chunk.reset();
      splicer_->Probe(sequence);
      if (!sequence.splice.probing) StartReading(sequence);
      if (plan.empty()) return;
    }
  }
  if (plan.chunk) CutAtAnswer(*plan.chunk);
  absl::Status status = RunRows(plan);
  if (status.ok()) return;
  // An expert could not be read. Only requests whose tokens are routed to it have to fail: run each
  // sequence of the step alone. Rows already written are written again with the same values.
  std::vector<StepPlan> alone;
  for (const ScheduledRow& row : plan.decode) alone.push_back({{row}, std::nullopt});
  if (plan.chunk) alone.push_back({{}, plan.chunk});
  for (const StepPlan& one : alone) {
    if (alone.size() > 1) status = RunRows(one);
    if (status.ok()) continue;
    const SequenceId id = one.chunk ? one.chunk->sequence : one.decode.front().sequence;
    LogError("request ", Find(id)->request_id, " failed: ", status.message());
    Finish(id, status, {});
  }
}

absl::Status StepLoop::RunRows(const StepPlan& plan) {
  row_tokens_.clear();
  row_positions_.clear();
  row_slots_.clear();
  row_sequence_.clear();
  page_tables_.clear();
  const auto add_rows = [&](const ScheduledRow& scheduled) {
    const Sequence& sequence = *Find(scheduled.sequence);
    const auto table = static_cast<int32_t>(page_tables_.size());
    page_tables_.emplace_back(sequence.pages);
    for (int i = 0; i < scheduled.count; ++i) {
      const int position = sequence.NextPosition(i);
      const int32_t page = sequence.pages[static_cast<size_t>(position / KvCache::kPageTokens)];
      row_tokens_.push_back(static_cast<int32_t>(sequence.tokens[static_cast<size_t>(position)]));
      row_positions_.push_back(position);
      row_slots_.push_back(page * KvCache::kPageTokens + position % KvCache::kPageTokens);
      row_sequence_.push_back(table);
    }
  };
  for (const ScheduledRow& row : plan.decode) add_rows(row);
  const int first_chunk_row = static_cast<int>(row_tokens_.size());
  if (plan.chunk) add_rows(*plan.chunk);

  const Scratch::Scope scope(*scratch_);
  Step step{.backend = *parts_.backend,
            .experts = parts_.experts,
            .kv = *parts_.kv,
            .scratch = *scratch_,
            .priority = plan.decode.empty() ? ExpertPriority::kPrompt : ExpertPriority::kDecode,
            .tokens = row_tokens_,
            .positions = row_positions_,
            .slots = row_slots_,
            .attention = {row_sequence_, row_positions_, page_tables_},
            .first_prompt_row = first_chunk_row,
            .prompt_rule = {},
            .tally = {},
            .unmet = {},
            .look_ahead = false,
            .x = {},
            .cos_sin = {}};
  Sequence* const reading = plan.chunk ? Find(plan.chunk->sequence) : nullptr;
  // Rows of an answer that is resumed are routed as they were when it was generated.
  if (reading != nullptr && reading->NextPosition(0) >= reading->answer_start()) {
    step.first_prompt_row = step.rows();
  } else if (reading != nullptr) {
    step.prompt_rule = reading->routing;
    step.unmet = reading->unmet;
  }
  if (step.experts != nullptr && !step.experts->HoldsAll()) {
    // Restricted rows choose among what is there: nothing to look ahead to.
    step.look_ahead = plan.decode.empty() ? options_.prompt_look_ahead &&
                                                step.prompt_rule.mode == PromptRouting::kFull
                                          : options_.decode_look_ahead && !plan.chunk;
  }
  STRATA_RETURN_IF_ERROR(ForwardPatiently(step));
  if (reading != nullptr) reading->routed.Add(step.tally);

  scheduler_.Advance(plan);
  if (!plan.decode.empty()) AfterDecode(step, plan);
  if (plan.chunk) AfterChunk(step, *plan.chunk, first_chunk_row);
  return absl::OkStatus();
}

absl::Status StepLoop::ForwardPatiently(Step& step) {
  const Clock::time_point give_up = Clock::now() + kExpertStorePatience;
  const size_t bottom = scratch_->used();
  for (bool announced = false;;) {
    absl::Status status = parts_.model->Forward(step);
    if (status.ok()) return status;
    scratch_->ShrinkTo(bottom);
    step.tally = {};
    if (!absl::IsUnavailable(status) || Clock::now() > give_up) return status;
    if (!std::exchange(announced, true)) {
      LogWarning("waiting for the expert store: ", status.message());
    }
    // Its error is the next Forward's.
    (void)parts_.experts->WaitUntilReady(static_cast<int>(kExpertStoreRetry.count()));
  }
}

void StepLoop::AfterDecode(Step& step, const StepPlan& plan) {
  const size_t vocab = static_cast<size_t>(logits_.cols);
  logit_rows_.resize(plan.decode.size());
  for (size_t i = 0; i < logit_rows_.size(); ++i) logit_rows_[i] = static_cast<int32_t>(i);
  const Tensor logits = logits_.Rows(0, static_cast<int64_t>(logit_rows_.size()));
  parts_.model->Logits(step, logit_rows_, logits);
  const std::span<float> host(host_logits_.data(), logit_rows_.size() * vocab);
  parts_.backend->CopyToHost(std::as_writable_bytes(host), logits.data);
  for (size_t i = 0; i < plan.decode.size(); ++i) {
    Sequence& sequence = *Find(plan.decode[i].sequence);
    ++sequence.computed;
    SaveFullBlocks(sequence);
    Emit(sequence, host.subspan(i * vocab, vocab));
  }
}

void StepLoop::AfterChunk(Step& step, const ScheduledRow& chunk, int first_row) {
  Sequence& sequence = *Find(chunk.sequence);
  if (sequence.scoring()) ScoreChunk(step, sequence, chunk.count, first_row);
  sequence.computed += chunk.count;
  if (!sequence.splice.unread.empty()) {
    sequence.splice.next_unread += static_cast<size_t>(chunk.count);
  }
  prompt_tokens_ += static_cast<uint64_t>(chunk.count);
  if (sequence.scoring()) {
    if (sequence.computed == sequence.prompt_tokens) Finish(sequence.id, absl::OkStatus(), {});
    return;
  }
  SaveFullBlocks(sequence);
  SendProgress(sequence);
  if (sequence.computed < sequence.prompt_tokens) return;
  if (!sequence.unmet.empty()) PromoteUnmet(sequence);
  const int32_t last = first_row + chunk.count - 1;
  const Tensor logits = logits_.Rows(0, 1);
  parts_.model->Logits(step, std::span(&last, 1), logits);
  const std::span<float> host(host_logits_.data(), static_cast<size_t>(logits_.cols));
  parts_.backend->CopyToHost(std::as_writable_bytes(host), logits.data);
  Emit(sequence, host);
}

void StepLoop::ScoreChunk(Step& step, Sequence& sequence, int rows, int first_row) {
  const size_t vocab = static_cast<size_t>(logits_.cols);
  const int top = static_cast<int>(sequence.score.top_logprobs());
  // Nothing behind first_position is restored, so from there on positions have no gaps.
  int begin = 0;
  while (begin < rows &&
         sequence.NextPosition(begin) < static_cast<int>(sequence.score.first_position())) {
    ++begin;
  }
  // A message with whole distributions must not become too large.
  const int most =
      sequence.score.distribution()
          ? std::clamp(static_cast<int>(kMaxDistributionBytes / (vocab * sizeof(float))), 1,
                       kScoreRows)
          : kScoreRows;
  for (; begin < rows; begin += most) {
    const int count = std::min(most, rows - begin);
    logit_rows_.resize(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) logit_rows_[static_cast<size_t>(i)] = first_row + begin + i;
    const Tensor logits = logits_.Rows(0, count);
    parts_.model->Logits(step, logit_rows_, logits);
    const std::span<float> host(host_logits_.data(), static_cast<size_t>(count) * vocab);
    parts_.backend->CopyToHost(std::as_writable_bytes(host), logits.data);

    v1::ScoreChunk result;
    result.set_first_position(static_cast<uint32_t>(sequence.NextPosition(begin)));
    for (int i = 0; i < count; ++i) {
      const int next = sequence.NextPosition(begin + i) + 1;
      if (next >= sequence.total()) break;  // nothing follows the last token
      const std::span<const float> row = host.subspan(static_cast<size_t>(i) * vocab, vocab);
      const auto token = static_cast<int32_t>(sequence.tokens[static_cast<size_t>(next)]);
      std::vector<TokenProbability> likely;
      const TokenProbability p = LogProbability(row, token, top, &likely);
      result.add_logprobs(p.logprob);
      result.add_argmax(
          static_cast<uint32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
      if (top > 0) {
        SetProbabilities(p, likely, *result.add_top());
      }
      if (sequence.score.distribution()) {
        const float normalizer = p.logprob - row[static_cast<size_t>(token)];
        for (const float l : row) {
          const float logprob = l + normalizer;
          result.mutable_distribution()->append(reinterpret_cast<const char*>(&logprob),
                                                sizeof(logprob));
        }
      }
    }
    sequence.score_sink->OnScores(result);
  }
}

void StepLoop::Emit(Sequence& sequence, std::span<float> logits) {
  const v1::GenerateRequest& request = sequence.request;
  v1::TokenBatch batch;
  v1::GeneratedToken& token = *batch.add_tokens();
  // The sampler changes the logits: take probabilities from a copy made before, only when asked
  // for.
  std::vector<float> unmodified;
  if (request.logprobs()) unmodified.assign(logits.begin(), logits.end());
  std::span<const uint32_t> forbidden;
  if (sequence.generated + static_cast<int>(request.resumed_tokens()) <
      static_cast<int>(request.min_tokens())) {
    forbidden = {request.stop_token_ids().data(),
                 static_cast<size_t>(request.stop_token_ids_size())};
  }
  const int32_t id =
      sequence.sampler->Sample(logits, static_cast<uint64_t>(sequence.total()), forbidden);
  if (sequence.generated == 0) sequence.first_token = Clock::now();

  const auto stop = std::find(request.stop_token_ids().begin(), request.stop_token_ids().end(),
                              static_cast<uint32_t>(id));
  if (stop != request.stop_token_ids().end()) {
    FinishGenerating(sequence, v1::Finish::STOP_TOKEN, *stop);
    return;
  }
  token.set_id(static_cast<uint32_t>(id));
  if (request.logprobs()) {
    std::vector<TokenProbability> likely;
    const TokenProbability chosen =
        LogProbability(unmodified, id, static_cast<int>(request.top_logprobs()), &likely);
    SetProbabilities(chosen, likely, token);
  }
  sequence.tokens.push_back(static_cast<uint32_t>(id));
  sequence.sampler->Observe(static_cast<uint32_t>(id), /*generated=*/true);
  ++sequence.generated;
  ++generated_tokens_;
  sequence.sink->OnTokens(batch);
  if (sequence.total() >= sequence.max_total_tokens) {
    const int resumed = static_cast<int>(request.resumed_tokens());
    const bool limit = request.max_tokens() != 0 &&
                       sequence.generated + resumed >= static_cast<int>(request.max_tokens());
    FinishGenerating(sequence, limit ? v1::Finish::MAX_TOKENS : v1::Finish::CONTEXT_FULL, 0);
  }
}

void StepLoop::SaveFullBlocks(Sequence& sequence) {
  if (!MayKeepState(sequence)) return;
  for (int end; (end = (sequence.saved_blocks + 1) * KvCache::kPageTokens) <= sequence.frontier();
       ++sequence.saved_blocks) {
    const auto first = static_cast<size_t>(sequence.saved_blocks) * KvCache::kPageTokens;
    SavedBlock block;
    block.tenant = sequence.request.restore().key().tenant();
    block.first_token = static_cast<uint32_t>(first);
    block.tokens.assign(
        sequence.tokens.begin() + static_cast<ptrdiff_t>(first),
        sequence.tokens.begin() + static_cast<ptrdiff_t>(first + KvCache::kPageTokens));
    block.parent = sequence.last_block;
    block.lineage = sequence.splice.first_spliced < end
                        ? std::max(sequence.lineage, sequence.splice.lineage)
                        : sequence.lineage;
    block.id = sequence.last_block =
        state::ChildId(block.parent, sequence.lineage, block.lineage, block.tokens);
    sequence.lineage = block.lineage;
    if (options_.share_kv) {
      parts_.kv->Publish(sequence.pages, static_cast<size_t>(sequence.saved_blocks), block.id,
                         block.tokens);
    }
    if (parts_.store == nullptr) continue;
    block.bytes.resize(parts_.kv->BlockBytes());
    parts_.kv->ReadPage(sequence.pages[static_cast<size_t>(sequence.saved_blocks)], block.bytes);
    parts_.store->Save(std::move(block));
  }
}

void StepLoop::SendProgress(Sequence& sequence) {
  if (sequence.scoring()) return;
  v1::Progress progress;
  progress.set_prompt_tokens(static_cast<uint32_t>(sequence.prompt_tokens));
  progress.set_read_tokens(static_cast<uint32_t>(sequence.computed));
  progress.set_cached_tokens(static_cast<uint32_t>(sequence.cached_tokens));
  progress.set_spliced_tokens(static_cast<uint32_t>(sequence.splice.spliced_tokens));
  progress.set_queue_position(
      static_cast<uint32_t>(scheduler_.QueuePosition(sequence.id, NowSeconds())));
  sequence.sink->OnProgress(progress);
}

void StepLoop::FinishGenerating(Sequence& sequence, v1::Finish::Reason reason,
                                uint32_t stop_token) {
  const int resumed = static_cast<int>(sequence.request.resumed_tokens());
  v1::Finish finish;
  finish.set_reason(reason);
  finish.set_stop_token_id(stop_token);
  v1::Usage& usage = *finish.mutable_usage();
  usage.set_prompt_tokens(static_cast<uint32_t>(sequence.prompt_tokens - resumed));
  usage.set_cached_tokens(
      static_cast<uint32_t>(std::min(sequence.cached_tokens, sequence.prompt_tokens - resumed)));
  usage.set_spliced_tokens(static_cast<uint32_t>(sequence.splice.spliced_tokens));
  usage.set_completion_tokens(static_cast<uint32_t>(sequence.generated + resumed));
  const RoutingTally& routed = sequence.routed;
  usage.set_prompt_routing(ToProto(sequence.routing.mode));
  usage.set_routed_choices(routed.choices);
  usage.set_substituted_choices(routed.substituted);
  if (routed.decisions > 0) {
    usage.set_kept_router_mass(routed.kept_mass / static_cast<double>(routed.decisions));
  }
  usage.set_bytes_not_read(routed.bytes_not_read);
  v1::Timings& timings = *finish.mutable_timings();
  timings.set_queue_ms(Milliseconds(sequence.admitted - sequence.submitted));
  timings.set_prompt_ms(Milliseconds(sequence.first_token - sequence.admitted));
  timings.set_generation_ms(Milliseconds(Clock::now() - sequence.first_token));
  if (parts_.experts != nullptr) {
    const ExpertCounters counters = parts_.experts->counters();
    timings.set_expert_hits(counters.hits - sequence.hits_before);
    timings.set_expert_misses(counters.misses - sequence.misses_before);
  }
  Finish(sequence.id, absl::OkStatus(), finish);
}

void StepLoop::Finish(SequenceId id, const absl::Status& status, const v1::Finish& finish) {
  const auto it = sequences_.find(id);
  const std::unique_ptr<Sequence> sequence = std::move(it->second);
  sequences_.erase(it);
  parts_.kv->GiveBack(sequence->pages);
  scheduler_.Remove(id);
  PublishStatus();  // before the caller learns of the end, so that it never sees itself running
  if (sequence->scoring()) {
    sequence->score_sink->OnFinish(status);
  } else {
    sequence->sink->OnFinish(status, finish);
  }
}

void StepLoop::PublishStatus() {
  const std::lock_guard lock(status_mutex_);
  status_.running = scheduler_.running();
  status_.waiting = scheduler_.waiting();
  status_.prompt_tokens = prompt_tokens_;
  status_.generated_tokens = generated_tokens_;
  status_.kv_pages_total = parts_.kv->pages();
  status_.kv_pages_used = parts_.kv->pages() - parts_.kv->free_pages();
  status_.kv_pages_idle = parts_.kv->idle_pages();
  if (parts_.experts != nullptr) status_.experts = parts_.experts->counters();
}

EngineStatus StepLoop::status() const {
  const std::lock_guard lock(status_mutex_);
  return status_;
}

}  // namespace strata::compute
