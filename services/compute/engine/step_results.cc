// StepLoop's way from a step's hidden states to its callers: logits, tokens, saved blocks, ends.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "services/compute/engine/step_loop.h"

namespace strata::compute {
namespace {

constexpr size_t kMaxDistributionBytes = 1 << 20;

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

int StepLoop::FirstScored(const Sequence& sequence, int rows) {
  // Nothing behind first_position is restored, so from there on positions have no gaps.
  int first = 0;
  while (first < rows &&
         sequence.NextPosition(first) < static_cast<int>(sequence.score.first_position())) {
    ++first;
  }
  return first;
}

void StepLoop::ScoreChunk(Step& step, Sequence& sequence, int rows, int first_row) {
  const size_t vocab = static_cast<size_t>(logits_.cols);
  const int top = static_cast<int>(sequence.score.top_logprobs());
  int begin = FirstScored(sequence, rows);
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

SavedBlock StepLoop::DescribeNext(const Sequence& sequence, int count) const {
  const int first = sequence.saved_blocks * KvCache::kPageTokens;
  const auto tokens =
      std::span(sequence.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  SavedBlock block;
  block.tenant = sequence.request.restore().key().tenant();
  block.first_token = static_cast<uint32_t>(first);
  block.tokens.assign(tokens.begin(), tokens.end());
  block.parent = sequence.last_block;
  block.lineage = sequence.splice.first_spliced < first + count
                      ? std::max(sequence.lineage, sequence.splice.lineage)
                      : sequence.lineage;
  return block;
}

void StepLoop::SaveTail(Sequence& sequence) {
  const int frontier = sequence.frontier();
  if (parts_.store == nullptr || sequence.scoring() || !MayKeepState(sequence) ||
      frontier <= sequence.cached_tokens) {
    return;
  }
  SaveFullBlocks(sequence);
  const int count = frontier - sequence.saved_blocks * KvCache::kPageTokens;
  if (count <= 0) return;
  SavedBlock tail = DescribeNext(sequence, count);
  tail.checkpoint = true;
  tail.id = state::CheckpointId(tail.parent, tail.lineage, tail.tokens);
  tail.bytes.resize(parts_.kv->shape().TokenBytes() * static_cast<uint64_t>(count));
  parts_.kv->ReadRows(sequence.pages[static_cast<size_t>(sequence.saved_blocks)], tail.bytes);
  parts_.store->Save(std::move(tail));
}

void StepLoop::SaveFullBlocks(Sequence& sequence) {
  if (!MayKeepState(sequence)) return;
  while ((sequence.saved_blocks + 1) * KvCache::kPageTokens <= sequence.frontier()) {
    SavedBlock block = DescribeNext(sequence, KvCache::kPageTokens);
    block.id = sequence.last_block =
        state::ChildId(block.parent, sequence.lineage, block.lineage, block.tokens);
    sequence.lineage = block.lineage;
    if (options_.share_kv) {
      parts_.kv->Publish(sequence.pages, static_cast<size_t>(sequence.saved_blocks), block.id,
                         block.tokens);
    }
    const auto page = static_cast<size_t>(sequence.saved_blocks++);
    if (parts_.store == nullptr) continue;
    block.bytes.resize(parts_.kv->BlockBytes());
    parts_.kv->ReadPage(sequence.pages[page], block.bytes);
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
  SaveTail(*sequence);
  parts_.kv->GiveBack(sequence->pages);
  scheduler_.Remove(id);
  PublishStatus();  // before the caller learns of the end, so that it never sees itself running
  if (sequence->scoring()) {
    sequence->score_sink->OnFinish(status);
  } else {
    sequence->sink->OnFinish(status, finish);
  }
}

}  // namespace strata::compute
