#include "services/compute/engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace strata::compute {
namespace {

Scheduler::Request Ask(SequenceId id, int prompt, const std::string& client = "c") {
  return {.id = id, .client = client, .prompt_tokens = prompt, .reusable_tokens = 0};
}

// Memory without end.
bool Always(SequenceId) { return true; }

TEST(Scheduler, PromptIsReadInChunksThenGenerates) {
  Scheduler s({.max_sequences = 2, .chunk_tokens = 4});
  s.Enqueue(Ask(1, 10), 0);
  ASSERT_EQ(s.Admit(0, Always), 1u);
  EXPECT_TRUE(s.Plan(0).empty()) << "not before its state is there";
  s.StartReading(1, 0);
  std::vector<std::pair<int, int>> chunks;
  while (s.Plan(0).chunk) {
    const StepPlan plan = s.Plan(0);
    EXPECT_TRUE(plan.decode.empty());
    chunks.emplace_back(plan.chunk->first, plan.chunk->count);
    s.Advance(plan);
  }
  EXPECT_EQ(chunks, (std::vector<std::pair<int, int>>{{0, 4}, {4, 4}, {8, 2}}));
  const StepPlan plan = s.Plan(0);
  ASSERT_EQ(plan.decode.size(), 1u);
  EXPECT_EQ(plan.decode[0].first, 10);
  s.Advance(plan);
  EXPECT_EQ(s.Plan(0).decode[0].first, 11);
}

TEST(Scheduler, LongChunksOnlyWhileNobodyWaitsForThem) {
  Scheduler s({.max_sequences = 2, .chunk_tokens = 4096});
  s.Enqueue(Ask(1, 6000), 0);
  s.Admit(0, Always);
  s.StartReading(1, 0);
  EXPECT_EQ(s.Plan(0).chunk->count, 4096);
  s.Enqueue(Ask(2, 1), 0);
  s.Admit(0, Always);
  s.StartReading(2, 0);
  s.Advance(s.Plan(0));  // the short one is read first
  ASSERT_EQ(s.Plan(0).decode.size(), 1u);
  EXPECT_EQ(s.Plan(0).chunk->count, Scheduler::kShortChunk);
}

TEST(Scheduler, DecodeGoesOnBesideAPrompt) {
  Scheduler s({.max_sequences = 2, .chunk_tokens = 4});
  s.Enqueue(Ask(1, 1), 0);
  s.Admit(0, Always);
  s.StartReading(1, 0);
  s.Advance(s.Plan(0));
  s.Enqueue(Ask(2, 9), 0);
  s.Admit(0, Always);
  s.StartReading(2, 0);
  const StepPlan plan = s.Plan(0);
  ASSERT_EQ(plan.decode.size(), 1u);
  EXPECT_EQ(plan.decode[0].sequence, 1u);
  ASSERT_TRUE(plan.chunk);
  EXPECT_EQ(plan.chunk->sequence, 2u);
}

TEST(Scheduler, WhoHasNoMemoryWaitsAndIsNotOvertaken) {
  Scheduler s({.max_sequences = 8, .chunk_tokens = 4});
  int free = 4;
  const auto reserve = [&](SequenceId id) {
    const int wanted = id == 1 ? 3 : static_cast<int>(id);  // 3, 2, 3 pages
    if (wanted > free) return false;
    free -= wanted;
    return true;
  };
  s.Enqueue(Ask(1, 2), 0);
  s.Enqueue(Ask(2, 3), 0);
  EXPECT_EQ(s.Admit(0, reserve), 1u);
  EXPECT_EQ(s.Admit(0, reserve), std::nullopt);
  EXPECT_EQ(s.running(), 1);
  s.Enqueue(Ask(3, 9), 0);
  free = 1;
  EXPECT_EQ(s.Admit(0, reserve), std::nullopt) << "2 is the next";
  s.Remove(1);
  free = 4;
  EXPECT_EQ(s.Admit(0, reserve), 2u);
}

TEST(Scheduler, ShortPromptsFirstButLongOnesAreNotStarved) {
  Scheduler s({.max_sequences = 1, .chunk_tokens = 4});
  s.Enqueue(Ask(1, 10'000), 0);
  SequenceId next = 2;
  double now = 0;
  // A fresh short prompt every second: the long one must come within the time its length buys.
  for (; now < 100; now += 1) {
    s.Enqueue(Ask(next++, 10), now);
    const auto admitted = s.Admit(now, Always);
    ASSERT_TRUE(admitted);
    if (*admitted == 1) break;
    s.Remove(*admitted);
  }
  EXPECT_GT(now, 0) << "the short prompt goes first";
  EXPECT_LE(now, 10'000 / Scheduler::kAgeingTokensPerSecond + 1);
}

TEST(Scheduler, ReusedTokensCountAsRead) {
  Scheduler s({.max_sequences = 1, .chunk_tokens = 4});
  s.Enqueue(Ask(1, 500), 0);
  Scheduler::Request cached = Ask(2, 9000);
  cached.reusable_tokens = 8900;
  s.Enqueue(cached, 0);
  EXPECT_EQ(s.Admit(0, Always), 2u);
}

TEST(Scheduler, AnotherClientGoesBeforeASecondRequestOfTheSame) {
  Scheduler s({.max_sequences = 2, .chunk_tokens = 4});
  s.Enqueue(Ask(1, 10, "greedy"), 0);
  EXPECT_EQ(s.Admit(0, Always), 1u);
  s.Enqueue(Ask(2, 10, "greedy"), 0);
  s.Enqueue(Ask(3, 1000, "other"), 0);
  EXPECT_EQ(s.QueuePosition(2, 0), 1);
  EXPECT_EQ(s.Admit(0, Always), 3u);
}

// Random life: a sequence's rows are consecutive, and no step has more than one chunk or exceeds
// its size.
TEST(Scheduler, InvariantsUnderRandomLoad) {
  std::mt19937 random(7);
  const Scheduler::Limits limits{.max_sequences = 4, .chunk_tokens = 16};
  Scheduler s(limits);
  std::map<SequenceId, int> next_row;  // of running sequences
  std::map<SequenceId, int> total;
  SequenceId id = 1;
  double now = 0;
  for (int step = 0; step < 20'000; ++step, now += 0.01) {
    if (random() % 4 == 0 && s.waiting() < 20) {
      const int prompt = 1 + static_cast<int>(random() % 100);
      const int all = prompt + 1 + static_cast<int>(random() % 60);
      total[id] = all;
      s.Enqueue(Ask(id++, prompt, "client" + std::to_string(random() % 3)), now);
    }
    while (const auto admitted = s.Admit(now, Always)) {
      next_row[*admitted] = 0;
      s.StartReading(*admitted, 0);
    }
    ASSERT_LE(s.running(), limits.max_sequences);
    const StepPlan plan = s.Plan(now);
    std::set<SequenceId> in_step;
    for (const ScheduledRow& row : plan.decode) {
      ASSERT_EQ(row.first, next_row[row.sequence]++);
      ASSERT_TRUE(in_step.insert(row.sequence).second);
    }
    if (plan.chunk) {
      ASSERT_LE(plan.chunk->count, limits.chunk_tokens);
      ASSERT_GT(plan.chunk->count, 0);
      ASSERT_EQ(plan.chunk->first, next_row[plan.chunk->sequence]);
      next_row[plan.chunk->sequence] += plan.chunk->count;
      ASSERT_TRUE(in_step.insert(plan.chunk->sequence).second);
    }
    s.Advance(plan);
    std::vector<SequenceId> done;
    for (const auto& [sequence, row] : next_row) {
      if (row >= total[sequence] || random() % 200 == 0) done.push_back(sequence);
    }
    for (const SequenceId sequence : done) {
      s.Remove(sequence);
      next_row.erase(sequence);
    }
  }
  for (const auto& [sequence, row] : next_row) s.Remove(sequence);
  while (const auto admitted = s.Admit(now, Always)) s.Remove(*admitted);
  EXPECT_EQ(s.running(), 0);
}

}  // namespace
}  // namespace strata::compute
