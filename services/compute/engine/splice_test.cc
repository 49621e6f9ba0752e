#include "services/compute/engine/splice.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace strata::compute {
namespace {

void AddRun(v1::RestorePlan& plan, uint32_t first, uint32_t old_first, uint32_t tokens) {
  v1::MovedRun& run = *plan.add_runs();
  run.set_first_token(first);
  run.set_old_first_token(old_first);
  run.set_tokens(tokens);
  for (uint32_t at = old_first / 64 * 64; at < old_first + tokens; at += 64) {
    v1::BlockRef& block = *run.add_blocks();
    block.set_first_token(at);
    block.set_tokens(64);
  }
}

TEST(Splice, RunsAreCutIntoTheRowsOfTheirBlocks) {
  v1::RestorePlan plan;
  plan.set_reused_tokens(64);
  AddRun(plan, 70, 100, 100);
  AddRun(plan, 170, 64, 64);
  const auto pieces = MovedRowsOf(plan, 300, 64);
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  const std::vector<MovedRows> expected = {
      {36, 28, 70, -30}, {0, 64, 98, -30}, {0, 8, 162, -30}, {0, 64, 170, 106}};
  EXPECT_EQ(*pieces, expected);
}

TEST(Splice, PlansThatMakeNoSenseAreRefused) {
  const auto refused = [](auto change) {
    v1::RestorePlan plan;
    plan.set_reused_tokens(64);
    AddRun(plan, 70, 100, 100);
    AddRun(plan, 180, 64, 64);
    EXPECT_TRUE(MovedRowsOf(plan, 300, 64).ok());
    change(plan);
    return absl::IsInvalidArgument(MovedRowsOf(plan, 300, 64).status());
  };
  EXPECT_TRUE(refused([](auto& p) { p.set_reused_tokens(128); })) << "into the prefix";
  EXPECT_TRUE(refused([](auto& p) { p.mutable_runs(1)->set_first_token(169); })) << "overlap";
  EXPECT_TRUE(refused([](auto& p) { p.mutable_runs(1)->set_first_token(236); }))
      << "the last token";
  EXPECT_TRUE(refused([](auto& p) { p.mutable_runs(1)->set_first_token(0xFFFFFFF0); }));
  EXPECT_TRUE(refused([](auto& p) { p.mutable_runs(0)->set_tokens(0); }));
  EXPECT_TRUE(refused([](auto& p) { p.mutable_runs(0)->set_tokens(0xFFFFFFFF); }));
  EXPECT_TRUE(refused([](auto& p) { p.mutable_runs(0)->set_old_first_token(0xFFFFFFFF); }));
  EXPECT_TRUE(refused([](auto& p) { p.mutable_runs(0)->set_old_first_token(10); }))
      << "not covered";
  EXPECT_TRUE(refused([](auto& p) { p.mutable_runs(0)->mutable_blocks()->RemoveLast(); }));
  EXPECT_TRUE(refused([](auto& p) { *p.mutable_runs(0)->add_blocks() = p.runs(1).blocks(0); }));
  EXPECT_TRUE(refused([](auto& p) { p.mutable_runs(0)->mutable_blocks(1)->set_tokens(32); }));
  EXPECT_TRUE(refused([](auto& p) { p.mutable_runs(0)->mutable_blocks(1)->set_first_token(64); }));
}

TEST(Splice, FirstTokensComeBeforeLargeDeviations) {
  const std::vector<TokenRange> moved = {{10, 60}, {100, 150}};
  std::vector<float> deviations(100, 1);
  deviations[49] = 9;
  deviations[70] = 8;
  deviations[30] = 7;
  EXPECT_TRUE(ChooseAgain(moved, deviations, 0).empty());
  const std::vector<int32_t> few = ChooseAgain(moved, deviations, 0.18);
  const std::vector<int32_t> expected = {10,  11,  12,  13,  14,  15,  16,  17,  59,
                                         100, 101, 102, 103, 104, 105, 106, 107, 120};
  EXPECT_EQ(few, expected);
  EXPECT_EQ(ChooseAgain(moved, deviations, 1).size(), 100u);
}

// Whatever moved: every position is read or moved, in order, and once.
TEST(Splice, ReadingOrderHasAllPositionsThatAreNotThere) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const int known = static_cast<int>(random() % 20);
    std::vector<TokenRange> moved;
    int at = known;
    while (at < 200) {
      const int first = at + static_cast<int>(random() % 30);
      const int last = first + 1 + static_cast<int>(random() % 30);
      AppendRange(moved, {first, last});
      at = last;
    }
    const int prompt = at + 1 + static_cast<int>(random() % 10);
    std::vector<float> deviations(static_cast<size_t>(TokensIn(moved)));
    for (float& d : deviations) d = static_cast<float>(random() % 10);
    const std::vector<int32_t> again =
        ChooseAgain(moved, deviations, static_cast<double>(random() % 11) / 10);
    std::vector<int32_t> expected;
    for (int p = known; p < prompt; ++p) {
      const bool there = std::any_of(moved.begin(), moved.end(), [&](const TokenRange& r) {
        return p >= r.first && p < r.last;
      });
      if (!there || std::find(again.begin(), again.end(), p) != again.end()) expected.push_back(p);
    }
    EXPECT_EQ(PositionsToRead(known, prompt, moved, again), expected);
    for (size_t i = 1; i < moved.size(); ++i) EXPECT_LT(moved[i - 1].last, moved[i].first);
  }
}

}  // namespace
}  // namespace strata::compute
