// The simulated GPU itself: exchange, barriers, and that it notices what a GPU would not tell.
#include "tests/simt/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "services/compute/gpu/device.h"
#include "services/compute/gpu/reduce.h"

namespace strata::compute::gpu {
namespace {

using simt::Schedule;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class ExecutorTest : public ::testing::TestWithParam<Schedule> {
 protected:
  ExecutorTest() { SimtDevice().set_schedule(GetParam()); }

  static std::string Run(const LaunchShape& shape, const std::function<void()>& body) {
    return SimtDevice().Run({shape.blocks_x, shape.blocks_y, shape.threads, shape.shared_bytes},
                            body);
  }
};

TEST_P(ExecutorTest, RunsEveryThreadOfEveryBlockOnce) {
  std::vector<int> counts(3 * 2 * 128);
  EXPECT_EQ(Run({.blocks_x = 3, .blocks_y = 2, .threads = 128},
                [&] { ++counts[(BlockY() * 3 + BlockX()) * 128 + ThreadIndex()]; }),
            "");
  EXPECT_THAT(counts, Each(1));
}

// The ABI promises 16 bytes, and compilers use aligned instructions because of it.
TEST_P(ExecutorTest, StacksAreAligned) {
  std::vector<uintptr_t> addresses(64);
  EXPECT_EQ(Run({.threads = 64},
                [&] {
                  alignas(16) volatile float local[4] = {};
                  addresses[ThreadIndex()] = reinterpret_cast<uintptr_t>(&local);
                }),
            "");
  for (const uintptr_t address : addresses) EXPECT_EQ(address % 16, 0);
}

TEST_P(ExecutorTest, ShufflesWithinGroups) {
  std::vector<int> from_lane(192), from_xor(192);
  std::vector<double> wide(192);
  EXPECT_EQ(Run({.threads = 192},
                [&] {
                  const int t = ThreadIndex();
                  from_lane[t] = Shuffle(t, 5);
                  from_xor[t] = ShuffleXor(t, 16);
                  wide[t] = Shuffle(t + 0.5, t % 32);
                }),
            "");
  for (int t = 0; t < 192; ++t) {
    EXPECT_EQ(from_lane[t], t / 32 * 32 + 5);
    EXPECT_EQ(from_xor[t], t ^ 16);
    EXPECT_EQ(wide[t], t + 0.5);
  }
}

TEST_P(ExecutorTest, BallotsWithinGroups) {
  std::vector<uint32_t> ballots(128);
  EXPECT_EQ(
      Run({.threads = 128},
          [&] { ballots[ThreadIndex()] = GroupBallot(ThreadIndex() % (2 + GroupIndex()) == 0); }),
      "");
  for (int t = 0; t < 128; ++t) {
    uint32_t expected = 0;
    for (int lane = 0; lane < 32; ++lane) {
      const int other = t / 32 * 32 + lane;
      if (other % (2 + other / 32) == 0) expected |= uint32_t{1} << lane;
    }
    EXPECT_EQ(ballots[t], expected) << t;
  }
}

TEST_P(ExecutorTest, ReducesOverGroupsAndBlocks) {
  std::vector<float> groups(256), blocks(256);
  std::vector<uint64_t> largest(256);
  EXPECT_EQ(Run({.threads = 256, .shared_bytes = 8 * sizeof(float)},
                [&] {
                  const int t = ThreadIndex();
                  groups[t] = GroupSum(static_cast<float>(t));
                  largest[t] = GroupMax(static_cast<uint64_t>((t * 37) % 256) << 40);
                  blocks[t] =
                      BlockSum(static_cast<float>(t), reinterpret_cast<float*>(SharedMemory()));
                }),
            "");
  EXPECT_THAT(blocks, Each(255 * 256 / 2));
  for (int t = 0; t < 256; ++t) {
    const int first = t / 32 * 32;
    EXPECT_EQ(groups[t], 32 * first + 31 * 32 / 2);
    uint64_t expected = 0;
    for (int i = first; i < first + 32; ++i) {
      expected = std::max(expected, static_cast<uint64_t>((i * 37) % 256) << 40);
    }
    EXPECT_EQ(largest[t], expected);
  }
}

TEST_P(ExecutorTest, BarriersSeparatePhases) {
  std::vector<int> mirrored(256);
  EXPECT_EQ(Run({.blocks_x = 2, .threads = 256, .shared_bytes = 256 * sizeof(int)},
                [&] {
                  int* shared = reinterpret_cast<int*>(SharedMemory());
                  for (int round = 0; round < 3; ++round) {
                    shared[ThreadIndex()] = ThreadIndex() + round;
                    SyncBlock();
                    mirrored[ThreadIndex()] = shared[255 - ThreadIndex()];
                    SyncBlock();
                  }
                }),
            "");
  for (int t = 0; t < 256; ++t) EXPECT_EQ(mirrored[t], 255 - t + 2);
}

// What a missing barrier does: the two schedules disagree.
TEST(ExecutorScheduleTest, AMissingBarrierChangesTheResult) {
  std::vector<int> seen[2];
  for (const Schedule schedule : {Schedule::kForward, Schedule::kReverse}) {
    std::vector<int>& result = seen[static_cast<int>(schedule)];
    result.resize(64);
    SimtDevice().set_schedule(schedule);
    EXPECT_EQ(SimtDevice().Run({1, 1, 64, 64 * sizeof(int)},
                               [&] {
                                 int* shared = reinterpret_cast<int*>(SharedMemory());
                                 shared[ThreadIndex()] = ThreadIndex();
                                 result[ThreadIndex()] = shared[63 - ThreadIndex()];
                               }),
              "");
  }
  EXPECT_NE(seen[0], seen[1]);
}

TEST_P(ExecutorTest, SharedMemoryStartsAsNaN) {
  std::vector<float> seen(64);
  EXPECT_EQ(Run({.blocks_x = 2, .threads = 64, .shared_bytes = 64 * sizeof(float)},
                [&] {
                  float* shared = reinterpret_cast<float*>(SharedMemory());
                  seen[ThreadIndex()] = shared[ThreadIndex()];
                  shared[ThreadIndex()] = 1;
                }),
            "");
  for (const float value : seen) EXPECT_TRUE(std::isnan(value));
}

TEST_P(ExecutorTest, NoticesDivergentBarriers) {
  // Named functions: within a macro's arguments all code has the macro's source location.
  const auto two_places = [] {
    if (ThreadIndex() < 10) {  // NOLINT(bugprone-branch-clone): equal but for their place
      SyncBlock();
    } else {
      SyncBlock();
    }
  };
  EXPECT_THAT(
      Run({.blocks_x = 3, .threads = 64}, two_places),
      AllOf(HasSubstr("block (0, 0)"), HasSubstr("divergent"), HasSubstr("executor_test.cc")));

  const auto one_leaves = [] {
    if (ThreadIndex() != 7) SyncBlock();
  };
  EXPECT_THAT(Run({.threads = 64}, one_leaves),
              AllOf(HasSubstr("wait forever"), HasSubstr("1 of 64 threads have finished"),
                    HasSubstr("and 59 more")));

  const auto one_skips_an_exchange = [] {
    if (ThreadIndex() != 7) ShuffleXor(1, 1);
  };
  EXPECT_THAT(Run({.threads = 64}, one_skips_an_exchange), HasSubstr("wait forever"));

  const auto groups_part = [] {
    if (ThreadIndex() < 32) {
      ShuffleXor(1, 1);
      SyncBlock();
    } else {
      SyncBlock();
      ShuffleXor(1, 1);
    }
  };
  EXPECT_THAT(Run({.threads = 64}, groups_part),
              STRATA_SIMT_WARP == 64 ? HasSubstr("wait forever") : HasSubstr("divergent"));
}

TEST_P(ExecutorTest, WorksAfterAFailure) {
  const auto stuck = [] {
    if (ThreadIndex() != 7) SyncBlock();
  };
  EXPECT_NE(Run({.threads = 64}, stuck), "");
  int runs = 0;
  const auto fine = [&] {
    SyncBlock();
    ++runs;
  };
  EXPECT_EQ(Run({.threads = 64}, fine), "");
  EXPECT_EQ(runs, 64);
}

TEST_P(ExecutorTest, RefusesImpossibleBlocks) {
  for (const unsigned threads : {0U, 1U, 100U, 2048U}) {
    EXPECT_THAT(Run({.threads = threads}, [] {}), HasSubstr("multiple of the warp"));
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, ExecutorTest,
                         ::testing::Values(Schedule::kForward, Schedule::kReverse),
                         [](const auto& test) {
                           return test.param == Schedule::kForward ? "Forward" : "Reverse";
                         });

}  // namespace
}  // namespace strata::compute::gpu
