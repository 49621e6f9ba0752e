// The thread that owns the model: takes messages, plans a step, runs it, delivers the results.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "services/compute/engine/engine.h"
#include "services/compute/engine/inbox.h"
#include "services/compute/engine/restorer.h"
#include "services/compute/engine/scheduler.h"
#include "services/compute/engine/splicer.h"

#include "absl/status/statusor.h"

namespace strata::compute {

// How a prompt is read whose request does not say it.
PromptRouting DefaultRouting(const Engine::Parts& parts, const EngineOptions& options);
v1::PromptRouting ToProto(PromptRouting routing);

class StepLoop {
 public:
  // Allocates the activations; the error names what was refused.
  static absl::StatusOr<std::unique_ptr<StepLoop>> Create(const Engine::Parts& parts,
                                                          const EngineOptions& options,
                                                          Inbox& inbox);

  // Returns after a StopMessage; every sequence still alive finishes with Cancelled.
  void Run();

  EngineStatus status() const;  // any thread

 private:
  // Rows of logits computed at once when a whole prompt is scored.
  static constexpr int kScoreRows = 32;

  StepLoop(const Engine::Parts& parts, const EngineOptions& options, Inbox& inbox);

  bool HandleMessages(std::vector<Message> messages);  // false: stop
  // Few restored blocks are on the way at a time (Restorer::kMaxInFlight). Were only those taken
  // that are there between two steps, a long restore would last many steps of others: takes what
  // comes for a part of a step's time. False: stop.
  bool AwaitRestored();
  void Handle(SubmitMessage message);
  void Handle(const CancelMessage& message);
  void Handle(const RestoredBlockMessage& message);
  void Handle(const RestoreDoneMessage& message);

  void TakePrefixBlock(Sequence& sequence, int block, std::span<const std::byte> bytes);
  // The first rows of a block or checkpoint behind the last whole block, into a page of its own.
  void TakeRows(Sequence& sequence, const v1::BlockRef& ref, int rows,
                std::span<const std::byte> bytes);
  void StartReading(Sequence& sequence);

  void AdmitWaiting();
  // Pages for a sequence's worst case, those at its start from others with the same text. False and
  // nothing taken if memory is short.
  bool ReservePages(Sequence& sequence);
  bool TryReserve(Sequence& sequence, int most_shared);
  // Shares what is in memory of the sequence's first `most` blocks and sets it up to go on behind
  // them.
  void SharePrefix(Sequence& sequence, size_t most);
  bool MayKeepState(const Sequence& sequence) const;
  void ChooseRouting(Sequence& sequence) const;
  // Asks for the experts that the prompt wanted most and did not get.
  void PromoteUnmet(Sequence& sequence);
  // Cuts a chunk where the original prompt of a resumed answer ends: what follows was generated.
  void CutAtAnswer(ScheduledRow& chunk);
  void RunPlan(const StepPlan& wanted);
  // Forward and everything after it for the rows of one plan; on an error nothing has changed and
  // the same plan may be tried again.
  absl::Status RunRows(const StepPlan& plan);
  // The rows whose results are read: those of answers, and of a prompt the last one or what is
  // scored.
  void ListWantedRows(const StepPlan& plan, int first_chunk_row);
  absl::Status ForwardPatiently(Step& step);
  void AfterDecode(Step& step, const StepPlan& plan);
  void AfterChunk(Step& step, const ScheduledRow& chunk, int first_row);
  // Of the next `rows` rows, the first with a score that was asked for.
  static int FirstScored(const Sequence& sequence, int rows);
  void ScoreChunk(Step& step, Sequence& sequence, int rows, int first_row);
  void Emit(Sequence& sequence, std::span<float> logits);
  void SaveFullBlocks(Sequence& sequence);
  // What is behind the last whole block, so that whoever comes back does not read it again.
  void SaveTail(Sequence& sequence);
  // Describes the next `count` tokens behind the saved blocks.
  SavedBlock DescribeNext(const Sequence& sequence, int count) const;
  void SendProgress(Sequence& sequence);
  void FinishGenerating(Sequence& sequence, v1::Finish::Reason reason, uint32_t stop_token);
  // Delivers the end of a sequence and forgets it.
  void Finish(SequenceId id, const absl::Status& status, const v1::Finish& finish);
  Sequence* Find(SequenceId id);
  double NowSeconds() const;
  void PublishStatus();

  Engine::Parts parts_;
  EngineOptions options_;
  Inbox& inbox_;
  Scheduler scheduler_;
  std::optional<Restorer> restorer_;
  int restores_ = 0;  // under way
  Clock::duration last_step_{};
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;

  std::unique_ptr<Buffer> activations_;
  std::optional<Scratch> scratch_;
  std::optional<Splicer> splicer_;
  std::unique_ptr<Buffer> logits_memory_;
  Tensor logits_;
  std::vector<float> host_logits_;

  std::vector<std::pair<uint32_t, ExpertId>> promotions_;  // scratch: times wanted, expert

  // Rows of the step being built.
  std::vector<int32_t> row_tokens_, row_positions_, row_slots_, row_sequence_, wanted_rows_,
      logit_rows_;
  std::vector<std::span<const int32_t>> page_tables_;

  uint64_t prompt_tokens_ = 0;
  uint64_t generated_tokens_ = 0;
  mutable std::mutex status_mutex_;
  EngineStatus status_;
};

}  // namespace strata::compute
