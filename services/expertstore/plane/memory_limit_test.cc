// The arena gives memory back while clients use it, and takes it again: bytes stay right, memory
// really falls, nobody waits for ever.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "services/expertstore/test_support.h"

namespace strata::expertstore {
namespace {

constexpr uint32_t kLayers = 3;
constexpr uint32_t kExperts = 96;

bool Settled(RunningPlane& plane) {
  return Eventually([&] { return plane->Status().settled; });
}

class MemoryLimit : public testing::Test {
 protected:
  MemoryLimit() : options_(OptionsFor(model_, "limit")) {
    options_.experts_per_token = 4;
    all_ = PlanSlots(model_.geometry, 1ull << 40, 4).value().all_bytes;
  }
  const TestModel model_{"limit", kLayers, kExperts};
  DataPlaneOptions options_;
  uint64_t all_ = 0;
};

TEST_F(MemoryLimit, HoldsNoMoreThanItMayAndFillsUpAgain) {
  RunningPlane plane(options_);
  ASSERT_TRUE(Eventually([&] { return plane->Status().counts.resident == kLayers * kExperts; }));
  const uint64_t full = plane->Status().held_bytes;
  EXPECT_GE(full, all_);
  for (const uint64_t percent : {50, 25, 75, 10}) {
    ASSERT_TRUE(plane->SetMemoryLimit(all_ * percent / 100).ok());
    ASSERT_TRUE(Settled(plane));
    const DataPlaneStatus status = plane->Status();
    // The arena itself is rounded up to 2 MiB.
    EXPECT_LE(status.held_bytes, all_ * percent / 100 + (full - all_)) << percent;
    EXPECT_GE(status.held_bytes, all_ * percent / 100 * 9 / 10) << percent;
    EXPECT_LE(status.counts.resident, status.usable_slots);
    EXPECT_TRUE(Eventually([&] {  // after growing, what is free is filled in the background
      return plane->Status().counts.resident == plane->Status().usable_slots;
    })) << percent;
  }
  ASSERT_TRUE(plane->SetMemoryLimit(0).ok());
  EXPECT_TRUE(Eventually([&] { return plane->Status().counts.resident == kLayers * kExperts; }));
  EXPECT_EQ(plane->Status().held_bytes, full);
  auto client = Attach(options_);
  for (uint32_t e = 0; e < kLayers * kExperts; ++e) {
    const std::optional<uint32_t> slot = client->client().TryPin(e);
    ASSERT_TRUE(slot.has_value());
    EXPECT_TRUE(HasBytes(model_, client->client(), e, *slot)) << e;
    client->client().Unpin(*slot);
  }
}

TEST_F(MemoryLimit, TooLittleIsRefusedWithTheLeastThatIsPossible) {
  RunningPlane plane(options_);
  const absl::Status status = plane->SetMemoryLimit(4096);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(plane->Status().limit_bytes, plane->plan().bytes);
}

TEST_F(MemoryLimit, TheHotExpertsStay) {
  options_.policy = "lru";
  RunningPlane plane(options_);
  ASSERT_TRUE(Eventually([&] { return plane->Status().counts.resident == kLayers * kExperts; }));
  std::vector<ExpertUses> uses;
  for (uint32_t l = 1; l <= kLayers; ++l) {
    for (uint32_t e = 0; e < 10; ++e) uses.push_back({l, e * 9, 1});
  }
  plane->CountUses(uses, policy::Phase::kDecode);
  ASSERT_TRUE(plane->SetMemoryLimit(all_ / 4).ok());
  ASSERT_TRUE(Settled(plane));
  auto client = Attach(options_);
  for (const ExpertUses& use : uses) {
    EXPECT_TRUE(client->client().TryPin((use.layer - 1) * kExperts + use.index).has_value());
  }
}

TEST_F(MemoryLimit, APinHoldsItsSlotUntilItIsGone) {
  RunningPlane plane(options_);
  auto client = Attach(options_);
  std::vector<uint32_t> slots;
  for (uint32_t e = 0; e < kExperts; ++e) slots.push_back(Fetch(client->client(), e));
  ASSERT_TRUE(plane->SetMemoryLimit(plane->plan().least_bytes).ok());
  EXPECT_TRUE(Eventually([&] { return client->client().StoreStarved(); }));
  for (uint32_t e = 0; e < kExperts; ++e) {
    EXPECT_TRUE(HasBytes(model_, client->client(), e, slots[e]));
  }
  EXPECT_FALSE(plane->Status().settled);
  for (const uint32_t slot : slots) client->client().Unpin(slot);
  client->client().Ring();
  EXPECT_TRUE(Settled(plane));
}

TEST_F(MemoryLimit, UnderLoadEveryByteStaysRight) {
  RunningPlane plane(options_);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0};
  std::atomic<uint64_t> batches{0};
  const auto work = [&](uint32_t seed) {
    auto attachment = Attach(options_);
    shm::ArenaClient& client = attachment->client();
    std::mt19937 random(seed);
    while (!stop) {
      const uint32_t expert = random() % (kLayers * kExperts);
      const uint32_t slot = Fetch(client, expert);
      if (!HasBytes(model_, client, expert, slot)) ++wrong;
      client.Unpin(slot);
      client.Ring();
      ++batches;
    }
  };
  std::thread first(work, 1);
  std::thread second(work, 2);
  std::mt19937 random(3);
  for (int round = 0; round < 25; ++round) {
    const uint64_t before = batches;
    const uint64_t least = plane->plan().least_bytes;
    EXPECT_TRUE(plane->SetMemoryLimit(least + random() % (all_ - least)).ok());
    EXPECT_TRUE(Settled(plane));
    EXPECT_TRUE(Eventually([&] { return batches > before + 5; }));
  }
  stop = true;
  first.join();
  second.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace strata::expertstore
