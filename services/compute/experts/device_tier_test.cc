// The device tier on a simulated device, over a real store: bytes, budgets, and both threads at
// work.
#include "services/compute/experts/device_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>

#include "services/compute/experts/arena_expert_source.h"
#include "services/expertstore/test_support.h"

namespace strata::compute {
namespace {

using expertstore::DataPlaneOptions;
using expertstore::OptionsFor;
using expertstore::RunningPlane;
using expertstore::TestModel;

constexpr size_t kSlotBytes = 3 * 20032;  // the last layer's experts, parts aligned
constexpr double kGbs = 50;

// A store with room for `percent` of the experts and a device with `slots` slots.
struct Tiers {
  Tiers(const std::string& name, uint64_t percent, uint32_t slots, DeviceTier::Options options,
        double gbs = kGbs)
      : model(name, 4, 32) {
    DataPlaneOptions store = OptionsFor(model, name);
    store.arena_bytes =
        expertstore::PlanSlots(model.geometry, 1ull << 40, 1)->all_bytes * percent / 100;
    plane.emplace(store);
    const auto client = [&] {
      auto source = std::make_unique<ArenaExpertSource>(
          ArenaExpertSource::Options{store.attach_path, store.fingerprint, 200});
      EXPECT_TRUE(source->WaitUntilReady(20000).ok());
      return source;
    };
    tier = DeviceTier::Create(client(), client(),
                              SimulatedDevice::Create(slots * kSlotBytes, gbs).value(),
                              model.geometry, options)
               .value();
  }
  // One batch: every expert once, every byte right, also after others had time to overwrite it.
  void Run(std::span<const ExpertId> batch, ExpertPriority priority = ExpertPriority::kDecode,
           bool linger = false) {
    std::vector<ExpertUse> uses;
    for (const ExpertId id : batch) uses.push_back({id, 1});
    tier->CountUses(uses, priority);
    tier->Begin(batch, priority);
    std::set<uint32_t> seen;
    for (;;) {
      const auto ready = tier->Next();
      ASSERT_TRUE(ready.ok()) << ready.status();
      if (ready->empty()) break;
      if (linger) std::this_thread::sleep_for(std::chrono::microseconds(100));
      for (const ReadyExpert& expert : *ready) {
        ASSERT_TRUE(seen.insert(expert.position).second);
        ASSERT_EQ(batch[expert.position], expert.id);
        ASSERT_TRUE(model.Same(expert.id.layer, expert.id.index, expert.parts.part));
      }
    }
    tier->End();
    ASSERT_EQ(seen.size(), batch.size());
  }
  void WaitForUploads(uint64_t count) {
    EXPECT_TRUE(Eventually([&] {
      tier->Begin({}, ExpertPriority::kPrompt);  // takes what has finished
      tier->End();
      return tier->counters().uploads >= count;
    }));
    EXPECT_EQ(tier->counters().uploads, count);
  }
  TestModel model;
  std::optional<RunningPlane> plane;
  std::unique_ptr<DeviceTier> tier;
};

std::vector<ExpertId> First(uint16_t layer, uint16_t count) {
  std::vector<ExpertId> batch;
  for (uint16_t e = 0; e < count; ++e) batch.push_back({layer, e});
  return batch;
}

TEST(DeviceTier, WhatIsUsedIsUploadedWithinTheBudget) {
  Tiers tiers("device_budget", 100, 20, {.uploads_per_layer = 2, .uploads_per_step = 5});
  EXPECT_EQ(tiers.tier->slots(), 20u);
  // A step of four layers: two a layer, but five in all.
  for (uint16_t layer = 1; layer <= 4; ++layer) tiers.Run(First(layer, 6));
  tiers.WaitForUploads(5);
  EXPECT_EQ(tiers.tier->counters().device_hits, 0u);
  // The next one finds them, and uploads five others.
  for (uint16_t layer = 1; layer <= 4; ++layer) tiers.Run(First(layer, 6));
  EXPECT_EQ(tiers.tier->counters().device_hits, 5u);
  tiers.WaitForUploads(10);
  // A prompt uses them and uploads nothing.
  for (uint16_t layer = 1; layer <= 4; ++layer) {
    tiers.Run(First(layer, 6), ExpertPriority::kPrompt);
  }
  EXPECT_EQ(tiers.tier->counters().device_hits, 15u);
  tiers.WaitForUploads(10);
}

TEST(DeviceTier, ASlotThatTheStepHasUsedIsNoVictim) {
  Tiers tiers("device_victim", 100, 2, {.uploads_per_layer = 2, .uploads_per_step = 64});
  tiers.Run(First(1, 2));
  tiers.WaitForUploads(2);
  // Both slots are used by this step: its later layers find no victim.
  tiers.Run(First(1, 2));
  tiers.Run(First(2, 2));
  tiers.Run(First(3, 2));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  tiers.WaitForUploads(2);
  EXPECT_EQ(tiers.tier->counters().device_hits, 2u);
  // A step that does not use them may replace them.
  tiers.Run(First(2, 2));
  tiers.WaitForUploads(4);
  tiers.Run(First(1, 2));
  EXPECT_EQ(tiers.tier->counters().device_hits, 2u);
}

TEST(DeviceTier, ResidentsAreFoundAndNotAskedForBelow) {
  Tiers tiers("device_find", 100, 8, {.uploads_per_layer = 8, .uploads_per_step = 64});
  tiers.Run(First(2, 5));
  tiers.WaitForUploads(5);
  std::vector<uint8_t> there(32);
  tiers.tier->FindResident(2, there);
  for (size_t e = 0; e < 5; ++e) EXPECT_EQ(there[e], 1);
  const uint64_t misses = tiers.tier->counters().misses;
  tiers.Run(First(2, 5));
  EXPECT_EQ(tiers.tier->counters().misses, misses);
}

TEST(DeviceTier, ADeviceWithoutRoomForOneExpertIsRefused) {
  const TestModel model("device_small", 2, 4);
  const auto tier = DeviceTier::Create(nullptr, nullptr, SimulatedDevice::Create(4096, 1).value(),
                                       model.geometry, {});
  EXPECT_EQ(tier.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(tier.status().message()), testing::HasSubstr("device_tier.bytes = 4096"));
}

// Small memory on every level, random routing with repetition, slow copies: bytes stay right.
TEST(DeviceTier, StressOnSmallMemory) {
  Tiers tiers("device_stress", 30, 12, {.uploads_per_layer = 3, .uploads_per_step = 8}, 2);
  std::mt19937 random(7);
  const auto worked = [&] {  // the thread that copies may get no processor for a while
    const ExpertCounters counters = tiers.tier->counters();
    return counters.device_hits > 50 && counters.uploads > 50;
  };
  for (int step = 0; step < 150 || (step < 15000 && !worked()); ++step) {
    const bool prompt = step % 10 == 9;
    for (uint16_t layer = 1; layer <= 4; ++layer) {
      std::set<uint16_t> chosen;
      const size_t count = prompt ? 16 : 4;
      while (chosen.size() < count) {
        // Half of the choices fall on a quarter of the experts.
        chosen.insert(static_cast<uint16_t>(random() % (random() % 2 == 0 ? 8 : 32)));
      }
      std::vector<ExpertId> batch;
      for (const uint16_t e : chosen) batch.push_back({layer, e});
      tiers.Run(batch, prompt ? ExpertPriority::kPrompt : ExpertPriority::kDecode, layer == 2);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_TRUE(worked());
}

}  // namespace
}  // namespace strata::compute
