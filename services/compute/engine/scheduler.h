// Which rows run in the next step. Pure bookkeeping over integers: no tensors, no clock of its own.
//
// A step holds one row of every sequence that generates and at most one prompt chunk (a short one
// if anything generates). At admission the caller reserves the K/V pages of a sequence's worst case
// (prompt + allowed tokens), so nothing that runs can fail for memory; a newcomer waits instead.
// Order among waiting requests, and among prompts being read at each chunk border:
//   1. fairness: the client with fewer sequences running goes first;
//   2. cost: fewer unread tokens first, where each second of waiting counts as
//      kAgeingTokensPerSecond tokens less, so that a long prompt is not starved by short ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

namespace strata::compute {

using SequenceId = uint64_t;

struct ScheduledRow {
  SequenceId sequence = 0;
  int first = 0;  // position of the first row
  int count = 0;  // rows
};

struct StepPlan {
  std::vector<ScheduledRow> decode;   // one row each
  std::optional<ScheduledRow> chunk;  // prompt rows of one sequence
  bool empty() const { return decode.empty() && !chunk; }
};

class Scheduler {
 public:
  // A prompt of 2,000 tokens overtakes one of 10,000 that came at most 16 seconds earlier.
  static constexpr double kAgeingTokensPerSecond = 500;
  // The longest chunk beside answers that are being generated: they wait for it.
  static constexpr int kShortChunk = 512;

  struct Limits {
    int max_sequences = 8;
    int chunk_tokens = 512;
  };

  explicit Scheduler(const Limits& limits) : limits_(limits) {}

  struct Request {
    SequenceId id = 0;
    std::string client;
    int prompt_tokens = 0;
    int reusable_tokens = 0;  // that the state store promises
  };

  void Enqueue(const Request& request, double now_seconds);
  // Moves the best waiting request to the running set if a place is free and `reserve` finds memory
  // for it; without memory it waits rather than being overtaken for ever by smaller ones. Its
  // prompt is not read before StartReading (its state may still be on the way from the store).
  std::optional<SequenceId> Admit(double now_seconds, absl::FunctionRef<bool(SequenceId)> reserve);
  // Begin (or go on) with the prompt at token `computed`.
  void StartReading(SequenceId id, int computed);

  StepPlan Plan(double now_seconds) const;
  // The rows of a plan were computed. A sequence whose prompt is complete generates from then on.
  void Advance(const StepPlan& plan);

  // Leaves the queue or the running set.
  void Remove(SequenceId id);

  int waiting() const { return static_cast<int>(waiting_.size()); }
  int running() const { return static_cast<int>(running_.size()); }
  // 1 = next; 0 if not waiting.
  int QueuePosition(SequenceId id, double now_seconds) const;

 private:
  enum class Phase { kPreparing, kReading, kGenerating };
  struct Entry {
    Request request;
    double since = 0;
    int computed = 0;  // tokens whose state exists
    Phase phase = Phase::kPreparing;
  };
  int RunningOf(const std::string& client) const;
  // Smaller is earlier.
  double Cost(const Entry& entry, double now_seconds) const;
  bool Before(const Entry& a, const Entry& b, double now_seconds) const;
  Entry* FindRunning(SequenceId id);

  Limits limits_;
  std::vector<Entry> waiting_;
  std::vector<Entry> running_;
};

}  // namespace strata::compute
