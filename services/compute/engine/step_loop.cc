#include "services/compute/engine/step_loop.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"

namespace strata::compute {
namespace {

using std::chrono::milliseconds;

// How long a step waits for an expert store that is being restarted before its requests fail.
constexpr milliseconds kExpertStorePatience{60'000};
constexpr milliseconds kExpertStoreRetry{500};

// Between two steps those who run wait for one whose state is restored: at most this part of the
// time of a step, and no longer for one block (a drive of 300 MB/s has 6 MB in 20 ms). A store that
// hangs costs them the latter.
constexpr int kRestoreShare = 4;
constexpr milliseconds kNextBlock{20};

// Experts promoted after a prompt was read; more would still be on their way when they are needed.
constexpr size_t kMostPromotions = 32;

}  // namespace

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
    if (!HandleMessages(inbox_.Take(/*wait=*/plan.empty())) || !AwaitRestored()) break;
    // Messages may have removed sequences of the plan: plan again, it is cheap.
    const StepPlan current = scheduler_.Plan(NowSeconds());
    if (current.empty()) continue;
    const Clock::time_point begin = Clock::now();
    RunPlan(current);
    last_step_ = Clock::now() - begin;
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

bool StepLoop::AwaitRestored() {
  const Clock::time_point end = Clock::now() + last_step_ / kRestoreShare;
  while (restores_ > 0) {
    const Clock::duration left = end - Clock::now();
    if (left <= Clock::duration::zero()) break;
    std::vector<Message> messages = inbox_.TakeWithin(std::min<Clock::duration>(left, kNextBlock));
    if (messages.empty()) break;
    if (!HandleMessages(std::move(messages))) return false;
  }
  return true;
}

bool StepLoop::HandleMessages(std::vector<Message> messages) {
  for (Message& message : messages) {
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

void StepLoop::ListWantedRows(const StepPlan& plan, int first_chunk_row) {
  wanted_rows_.resize(plan.decode.size());
  std::iota(wanted_rows_.begin(), wanted_rows_.end(), 0);
  if (!plan.chunk) return;
  const Sequence& sequence = *Find(plan.chunk->sequence);
  const int count = plan.chunk->count;
  int first = count;  // of the chunk
  if (sequence.scoring()) {
    first = FirstScored(sequence, count);
  } else if (sequence.computed + count >= sequence.prompt_tokens) {
    first = count - 1;
  }
  for (int i = first; i < count; ++i) wanted_rows_.push_back(first_chunk_row + i);
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
  ListWantedRows(plan, first_chunk_row);

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
            .wanted = wanted_rows_,
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
    step.first_prompt_row = static_cast<int>(row_tokens_.size());
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
