#include "services/expertstore/service/memory_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "services/expertstore/test_support.h"

namespace strata::expertstore {
namespace {

TEST(NextLimit, GivesWhatIsMissingAndTakesWhatIsSpare) {
  //                          free limit ceiling least reserve
  EXPECT_EQ(NextLimit({50, 1000, 1000, 100, 100}), 950u);
  EXPECT_EQ(NextLimit({0, 1000, 1000, 950, 100}), 950u);
  EXPECT_EQ(NextLimit({0, 40, 1000, 10, 100}), 10u);
  EXPECT_EQ(NextLimit({150, 500, 1000, 100, 100}), 500u);  // neither
  EXPECT_EQ(NextLimit({220, 500, 1000, 100, 100}), 500u);  // too little to bother
  EXPECT_EQ(NextLimit({400, 500, 1000, 100, 100}), 700u);
  EXPECT_EQ(NextLimit({900, 990, 1000, 100, 100}), 1000u);
  EXPECT_EQ(NextLimit({900, 1000, 800, 100, 100}), 800u);  // the ceiling was lowered
  EXPECT_EQ(NextLimit({50, 70, 80, 100, 100}), 80u);       // a ceiling below the least
}

// Whatever is free, the next limit lies between the least and the ceiling, and once others' memory
// is constant it comes to rest.
TEST(NextLimit, ComesToRest) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    const uint64_t all = 1000 + random() % 10000;
    const uint64_t others = random() % all;
    const uint64_t reserve = random() % (all / 8 + 1);
    const uint64_t least = 1 + random() % 100;
    const uint64_t ceiling = least + random() % all;
    // There cannot be more memory in use than there is.
    uint64_t limit =
        std::max(least, std::min(all - others, least + random() % (ceiling - least + 1)));
    for (int step = 0; step < 20; ++step) {
      const uint64_t used = others + limit;
      limit = NextLimit({all > used ? all - used : 0, limit, ceiling, least, reserve});
      ASSERT_GE(limit, least);
      ASSERT_LE(limit, ceiling);
    }
    const uint64_t free = all > others + limit ? all - others - limit : 0;
    EXPECT_EQ(NextLimit({free, limit, ceiling, least, reserve}), limit);
    EXPECT_TRUE(limit == least || free >= reserve);
  }
}

TEST(MemoryWatch, FollowsTheMachineAndTheCeiling) {
  const TestModel model("watch", 3, 64);
  DataPlaneOptions options = OptionsFor(model, "watch");
  RunningPlane plane(options);
  const uint64_t all = plane->plan().bytes;
  std::atomic<uint64_t> free{all};
  {
    MemoryWatch watch(*plane.operator->(), all / 10, [&] { return free.load(); });
    free = 0;
    EXPECT_TRUE(Eventually([&] { return plane->Status().limit_bytes <= all / 10 * 9; }));
    free = 10 * all;
    EXPECT_TRUE(Eventually([&] {
      const DataPlaneStatus status = plane->Status();
      return status.limit_bytes == all && status.settled &&
             status.counts.resident == status.experts;
    }));
    const auto settled = [&] { return plane->Status().settled; };
    ASSERT_TRUE(watch.SetCeiling(all / 2).ok());
    EXPECT_TRUE(Eventually(settled));  // it waits itself, but not for ever
    EXPECT_LE(plane->Status().held_bytes, all / 2 + (2 << 20));
    EXPECT_FALSE(watch.SetCeiling(1).ok());
    EXPECT_EQ(plane->Status().limit_bytes, all / 2);
    ASSERT_TRUE(watch.SetCeiling(0).ok());
    EXPECT_TRUE(Eventually(settled));
    EXPECT_EQ(plane->Status().usable_slots, plane->Status().slots);
  }
}

}  // namespace
}  // namespace strata::expertstore
