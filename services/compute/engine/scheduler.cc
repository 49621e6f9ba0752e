#include "services/compute/engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace strata::compute {
void Scheduler::Enqueue(const Request& request, double now_seconds) {
  Entry entry;
  entry.request = request;
  entry.since = now_seconds;
  waiting_.push_back(std::move(entry));
}

int Scheduler::RunningOf(const std::string& client) const {
  return static_cast<int>(std::count_if(running_.begin(), running_.end(), [&](const Entry& e) {
    return e.request.client == client;
  }));
}

double Scheduler::Cost(const Entry& entry, double now_seconds) const {
  const int known = std::max(entry.computed, entry.request.reusable_tokens);
  return entry.request.prompt_tokens - known - kAgeingTokensPerSecond * (now_seconds - entry.since);
}

bool Scheduler::Before(const Entry& a, const Entry& b, double now_seconds) const {
  const double cost_a = Cost(a, now_seconds);
  const double cost_b = Cost(b, now_seconds);
  if (cost_a != cost_b) return cost_a < cost_b;
  return a.request.id < b.request.id;
}

std::optional<SequenceId> Scheduler::Admit(double now_seconds,
                                           absl::FunctionRef<bool(SequenceId)> reserve) {
  if (waiting_.empty() || running() >= limits_.max_sequences) return std::nullopt;
  const auto best =
      std::min_element(waiting_.begin(), waiting_.end(), [&](const Entry& a, const Entry& b) {
        const int running_a = RunningOf(a.request.client);
        const int running_b = RunningOf(b.request.client);
        if (running_a != running_b) return running_a < running_b;
        return Before(a, b, now_seconds);
      });
  const SequenceId id = best->request.id;
  if (!reserve(id)) return std::nullopt;
  running_.push_back(std::move(*best));
  waiting_.erase(best);
  return id;
}

Scheduler::Entry* Scheduler::FindRunning(SequenceId id) {
  const auto it = std::find_if(running_.begin(), running_.end(),
                               [&](const Entry& e) { return e.request.id == id; });
  return it == running_.end() ? nullptr : &*it;
}

void Scheduler::StartReading(SequenceId id, int computed) {
  if (Entry* entry = FindRunning(id)) {
    entry->computed = computed;
    entry->phase = Phase::kReading;
  }
}

StepPlan Scheduler::Plan(double now_seconds) const {
  StepPlan plan;
  const Entry* reader = nullptr;
  for (const Entry& entry : running_) {
    if (entry.phase == Phase::kGenerating) {
      plan.decode.push_back({entry.request.id, entry.computed, 1});
    } else if (entry.phase == Phase::kReading &&
               (reader == nullptr || Before(entry, *reader, now_seconds))) {
      reader = &entry;
    }
  }
  if (reader != nullptr) {
    const int rest = reader->request.prompt_tokens - reader->computed;
    const int most =
        plan.decode.empty() ? limits_.chunk_tokens : std::min(limits_.chunk_tokens, kShortChunk);
    plan.chunk = ScheduledRow{reader->request.id, reader->computed, std::min(rest, most)};
  }
  return plan;
}

void Scheduler::Advance(const StepPlan& plan) {
  for (const ScheduledRow& row : plan.decode) {
    if (Entry* entry = FindRunning(row.sequence)) ++entry->computed;
  }
  if (plan.chunk) {
    if (Entry* entry = FindRunning(plan.chunk->sequence)) {
      entry->computed += plan.chunk->count;
      if (entry->computed >= entry->request.prompt_tokens) entry->phase = Phase::kGenerating;
    }
  }
}

void Scheduler::Remove(SequenceId id) {
  std::erase_if(waiting_, [&](const Entry& e) { return e.request.id == id; });
  if (const Entry* entry = FindRunning(id)) {
    running_.erase(running_.begin() + (entry - running_.data()));
  }
}

int Scheduler::QueuePosition(SequenceId id, double now_seconds) const {
  const auto self = std::find_if(waiting_.begin(), waiting_.end(),
                                 [&](const Entry& e) { return e.request.id == id; });
  if (self == waiting_.end()) return 0;
  return 1 + static_cast<int>(std::count_if(waiting_.begin(), waiting_.end(), [&](const Entry& e) {
           return Before(e, *self, now_seconds);
         }));
}

}  // namespace strata::compute
