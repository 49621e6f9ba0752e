// The client against a real store: in threads here, in processes in expert_plane_fault_test.cc.
#include "services/compute/experts/arena_expert_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "services/expertstore/test_support.h"

namespace strata::compute {
namespace {

using expertstore::DataPlaneOptions;
using expertstore::FakeFactory;
using expertstore::OptionsFor;
using expertstore::ReadOp;
using expertstore::RunningPlane;
using expertstore::TestModel;
using ::testing::HasSubstr;

constexpr int kReadyMs = 20000;

ArenaExpertSource::Options ClientOptions(const DataPlaneOptions& options) {
  return {options.attach_path, options.fingerprint, 200};
}

// Bytes of an arena with room for `percent` of the experts.
uint64_t ArenaFor(const TestModel& model, uint64_t percent) {
  const auto plan = expertstore::PlanSlots(model.geometry, 1ull << 40, 1);
  return plan->all_bytes * percent / 100;
}

std::vector<ExpertId> Choose(std::mt19937& random, uint16_t layer, uint32_t experts,
                             uint32_t count) {
  std::vector<uint16_t> all(experts);
  for (uint32_t i = 0; i < experts; ++i) all[i] = static_cast<uint16_t>(i);
  std::shuffle(all.begin(), all.end(), random);
  std::vector<ExpertId> chosen;
  for (uint32_t i = 0; i < count; ++i) chosen.push_back({layer, all[i]});
  return chosen;
}

// Runs one batch and checks ids, positions and every byte.
absl::Status RunBatch(ExpertSource& source, const TestModel& model,
                      std::span<const ExpertId> experts,
                      ExpertPriority priority = ExpertPriority::kDecode) {
  source.Begin(experts, priority);
  std::set<uint32_t> seen;
  for (;;) {
    const auto ready = source.Next();
    if (!ready.ok()) {
      source.End();
      return ready.status();
    }
    if (ready->empty()) break;
    for (const ReadyExpert& expert : *ready) {
      EXPECT_TRUE(seen.insert(expert.position).second);
      EXPECT_EQ(experts[expert.position], expert.id);
      EXPECT_TRUE(model.Same(expert.id.layer, expert.id.index, expert.parts.part))
          << "layer " << expert.id.layer << " expert " << expert.id.index;
    }
  }
  source.End();
  EXPECT_EQ(seen.size(), experts.size());
  return absl::OkStatus();
}

TEST(ArenaExpertSource, MissesBecomeHits) {
  const TestModel model("hits");
  DataPlaneOptions options = OptionsFor(model, "hits");
  RunningPlane plane(options);
  ArenaExpertSource source(ClientOptions(options));
  ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
  for (int round = 0; round < 2; ++round) {
    for (uint16_t layer = 1; layer <= 3; ++layer) {
      std::vector<ExpertId> all;
      for (uint16_t e = 0; e < 16; ++e) all.push_back({layer, e});
      ASSERT_TRUE(RunBatch(source, model, all).ok());
    }
  }
  EXPECT_GE(source.counters().hits, 48u);
  EXPECT_EQ(source.counters().hits + source.counters().misses, 96u);
  const auto status = plane->Status();
  EXPECT_EQ(status.counts.resident, 48u);
  EXPECT_EQ(status.counts.hits, source.counters().hits);
  EXPECT_EQ(status.clients, 1u);
  EXPECT_EQ(status.counts.evictions, 0u);
}

TEST(ArenaExpertSource, BackgroundLoadFillsTheArenaOnItsOwn) {
  const TestModel model("background");
  RunningPlane plane(OptionsFor(model, "background"));
  while (plane->Status().counts.resident < 48) std::this_thread::yield();
  const auto status = plane->Status();
  EXPECT_EQ(status.counts.background_left, 0u);
  EXPECT_EQ(status.counts.misses, 0u);
}

// An arena of a quarter of the experts, batches larger than the arena's classes, several clients
// at once: every byte right, and everybody finishes.
TEST(ArenaExpertSource, SmallArenaServesSeveralClientsWithoutDeadlock) {
  const TestModel model("small", 4, 32);
  DataPlaneOptions options = OptionsFor(model, "small");
  options.arena_bytes = ArenaFor(model, 25);
  RunningPlane plane(options);
  std::vector<std::thread> threads;
  std::atomic<uint64_t> served{0};
  for (int c = 0; c < 4; ++c) {
    threads.emplace_back([&, c] {
      ArenaExpertSource source(ClientOptions(options));
      ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
      std::mt19937 random(c);
      for (int step = 0; step < 15; ++step) {
        for (uint16_t layer = 1; layer <= 4; ++layer) {
          const uint32_t count = step % 5 == 4 ? 32 : 8;
          const auto experts = Choose(random, layer, 32, count);
          const auto priority = c == 3 ? ExpertPriority::kPrompt : ExpertPriority::kDecode;
          const absl::Status status = RunBatch(source, model, experts, priority);
          ASSERT_TRUE(status.ok()) << status;
          served += count;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(served.load(), 4u * 4 * (12 * 8 + 3 * 32));
  const auto status = plane->Status();
  EXPECT_GT(status.counts.evictions, 100u);
  EXPECT_LE(status.counts.resident, status.slots);
}

// The extreme: one slot per size class.
TEST(ArenaExpertSource, OneSlotStillServesEverybody) {
  const TestModel model("one");
  DataPlaneOptions options = OptionsFor(model, "one");
  const auto plan = expertstore::PlanSlots(model.geometry, 1ull << 40, 1);
  options.arena_bytes = plan->least_bytes;
  RunningPlane plane(options);
  EXPECT_EQ(plane->Status().slots, 2u);
  std::vector<std::thread> threads;
  for (int c = 0; c < 3; ++c) {
    threads.emplace_back([&, c] {
      ArenaExpertSource source(ClientOptions(options));
      ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
      std::mt19937 random(c);
      for (int step = 0; step < 10; ++step) {
        const auto experts = Choose(random, 1 + step % 3, 16, 6);
        const absl::Status status = RunBatch(source, model, experts);
        ASSERT_TRUE(status.ok()) << status;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ArenaExpertSource, EndCancelsWhatWasNotWaitedFor) {
  const TestModel model("cancel", 4, 32);
  DataPlaneOptions options = OptionsFor(model, "cancel");
  options.arena_bytes = ArenaFor(model, 25);
  RunningPlane plane(options);
  ArenaExpertSource source(ClientOptions(options));
  ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
  std::mt19937 random(4);
  for (int step = 0; step < 200; ++step) {
    const auto experts = Choose(random, 1 + step % 4, 32, 32);
    source.Begin(experts, ExpertPriority::kDecode);
    if (step % 2 == 0) {
      ASSERT_TRUE(source.Next().ok());
    }
    source.End();
  }
  // Nothing is left held or pinned: a whole pass still works.
  for (uint16_t layer = 1; layer <= 4; ++layer) {
    ASSERT_TRUE(RunBatch(source, model, Choose(random, layer, 32, 32)).ok());
  }
}

TEST(ArenaExpertSource, LookAheadIsReadWithoutAnyoneWaiting) {
  const TestModel model("ahead", 4, 32);
  DataPlaneOptions options = OptionsFor(model, "ahead");
  options.arena_bytes = ArenaFor(model, 25);
  RunningPlane plane(options);
  ArenaExpertSource source(ClientOptions(options));
  ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
  // While the first experts load there is no victim, and a guess that finds no slot is dropped.
  ASSERT_TRUE(
      Eventually([&] { return plane->Status().counts.resident == plane->Status().usable_slots; }));
  std::mt19937 random(4);
  for (int step = 0; step < 40; ++step) {
    const auto layer = static_cast<uint16_t>(1 + step % 4);
    const auto experts = Choose(random, layer, 32, 4);
    source.LookAhead(experts, ExpertPriority::kDecode);
    ASSERT_TRUE(Eventually([&] {
      std::vector<uint8_t> there(32);
      source.FindResident(layer, there);
      if (std::all_of(experts.begin(), experts.end(),
                      [&](const ExpertId id) { return there[id.index] != 0; })) {
        return true;
      }
      // One that was there already may have been the victim of another.
      source.LookAhead(experts, ExpertPriority::kDecode);
      return false;
    }));
    ASSERT_TRUE(RunBatch(source, model, experts).ok());
  }
  EXPECT_EQ(source.counters().hits, 160u);
  EXPECT_EQ(source.counters().misses, 0u);
}

// A prompt's pass over the layers, the next one read while this one is worked on: bytes are right,
// what was read ahead is there, and decoding's experts are still in memory afterwards.
TEST(ArenaExpertSource, APromptReadsAheadBesideDecodingsExperts) {
  const TestModel model("sweep", 5, 32);  // layer 5 has slots of its own
  DataPlaneOptions options = OptionsFor(model, "sweep");
  options.policy = "lru";
  options.arena_bytes = ArenaFor(model, 60);
  RunningPlane plane(options);
  ArenaExpertSource source(ClientOptions(options));
  ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
  std::vector<ExpertId> decoded;
  for (uint16_t layer = 1; layer <= 4; ++layer) {
    std::vector<ExpertUse> uses;
    std::vector<ExpertId> batch;
    for (uint16_t e = 0; e < 4; ++e) {
      batch.push_back({layer, e});
      uses.push_back({{layer, e}, 1});
    }
    source.CountUses(uses, ExpertPriority::kDecode);
    ASSERT_TRUE(RunBatch(source, model, batch).ok());
    decoded.insert(decoded.end(), batch.begin(), batch.end());
  }
  const auto all_of = [](uint16_t layer) {
    std::vector<ExpertId> all;
    for (uint16_t e = 0; e < 32; ++e) all.push_back({layer, e});
    return all;
  };
  for (int pass = 0; pass < 5; ++pass) {
    for (uint16_t layer = 1; layer <= 4; ++layer) {
      const std::vector<ExpertId> batch = all_of(layer);
      std::vector<ExpertUse> uses;
      for (const ExpertId id : batch) uses.push_back({id, 3});
      source.CountUses(uses, ExpertPriority::kPrompt);
      source.Begin(batch, ExpertPriority::kPrompt);
      // What is there already is not asked for, and may have to make room for this layer's.
      std::vector<uint8_t> before(32);
      source.FindResident(static_cast<uint16_t>(layer + 1), before);
      source.LookAhead(
          layer < 4 ? all_of(static_cast<uint16_t>(layer + 1)) : std::vector<ExpertId>(),
          ExpertPriority::kPrompt);
      size_t seen = 0;
      for (;;) {
        const auto ready = source.Next();
        ASSERT_TRUE(ready.ok()) << ready.status();
        if (ready->empty()) break;
        seen += ready->size();
        for (const ReadyExpert& expert : *ready) {
          ASSERT_TRUE(model.Same(expert.id.layer, expert.id.index, expert.parts.part));
        }
      }
      source.End();
      ASSERT_EQ(seen, 32u);
      // Given time, what the next layer lacked is there before it is wanted.
      ASSERT_TRUE(layer == 4 || Eventually([&] {
                    std::vector<uint8_t> there(32);
                    source.FindResident(static_cast<uint16_t>(layer + 1), there);
                    return std::ranges::equal(
                        there, before, [](uint8_t now, uint8_t then) { return now + then > 0; });
                  }));
    }
  }
  EXPECT_GT(source.counters().looked_ahead, 0u);
  // Of the 20 layers read, only those nobody could look ahead to were waited for.
  EXPECT_LT(source.counters().misses, 16u + 5u * 32u + 2u * 32u);
  for (const ExpertId id : decoded) {
    std::vector<uint8_t> there(32);
    source.FindResident(id.layer, there);
    EXPECT_EQ(there[id.index], 1) << id.layer << " " << id.index;
  }
}

// Also if the store hears of the uses only together with it: all of them are hits, of which it is
// told when it wakes up the next time.
TEST(ArenaExpertSource, WhatIsHeldElsewhereGoesFirst) {
  const TestModel model("elsewhere", 2, 16);
  DataPlaneOptions options = OptionsFor(model, "elsewhere");
  options.policy = "lru";
  options.arena_bytes = ArenaFor(model, 50);
  RunningPlane plane(options);
  ASSERT_TRUE(Eventually([&] { return plane->Status().counts.resident == 16; }));
  ArenaExpertSource source(ClientOptions(options));
  ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
  const auto use = [&](std::vector<ExpertId> batch) {
    std::vector<ExpertUse> uses;
    for (const ExpertId id : batch) uses.push_back({id, 1});
    source.CountUses(uses, ExpertPriority::kDecode);
    ASSERT_TRUE(RunBatch(source, model, batch).ok());
  };
  use({{1, 0}, {1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 5}, {1, 6}, {1, 7}});
  source.HeldElsewhere(std::vector<ExpertId>{{1, 6}, {1, 7}});  // otherwise the last to go
  use({{1, 8}, {1, 9}});
  std::vector<uint8_t> there(16);
  source.FindResident(1, there);
  EXPECT_EQ(there, (std::vector<uint8_t>{1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0}));
}

TEST(ArenaExpertSource, AReadErrorIsClearAndHarmsNobodyElse) {
  const TestModel model("error");
  DataPlaneOptions options = OptionsFor(model, "error");
  // Expert 5 of layer 2 cannot be read.
  const auto& bad = model.geometry.layers[1].parts[1];
  const uint64_t bad_offset = bad.offset + 5 * bad.bytes_per_expert;
  RunningPlane plane(options, FakeFactory([&](const ReadOp& op) -> std::optional<int64_t> {
                       const bool hit = op.file == bad.file && op.offset <= bad_offset &&
                                        bad_offset < op.offset + op.bytes;
                       // The neighbour's read ends in the same block; only the whole one fails.
                       if (hit && bad_offset - op.offset < 4096) return -EIO;
                       return std::nullopt;
                     }));
  ArenaExpertSource source(ClientOptions(options));
  ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
  std::vector<ExpertId> all;
  for (uint16_t e = 0; e < 16; ++e) all.push_back({2, e});
  const absl::Status status = RunBatch(source, model, all);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(model.geometry.files[1]));
  EXPECT_THAT(std::string(status.message()), HasSubstr("offset"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Input/output error"));
  // The others are fine, also after the error.
  ASSERT_TRUE(RunBatch(source, model, std::vector<ExpertId>{{2, 7}, {2, 8}, {1, 5}}).ok());
  EXPECT_FALSE(RunBatch(source, model, std::vector<ExpertId>{{2, 5}}).ok());
  ASSERT_TRUE(RunBatch(source, model, std::vector<ExpertId>{{3, 5}}).ok());
  EXPECT_GE(plane->Status().read_errors, 4u);
}

TEST(ArenaExpertSource, UnavailableWithoutAStoreAndReadyOnceThereIsOne) {
  const TestModel model("late");
  DataPlaneOptions options = OptionsFor(model, "late");
  ArenaExpertSource source(ClientOptions(options));
  EXPECT_EQ(source.WaitUntilReady(30).code(), absl::StatusCode::kUnavailable);
  const std::vector<ExpertId> experts = {{1, 3}, {1, 4}};
  EXPECT_EQ(RunBatch(source, model, experts).code(), absl::StatusCode::kUnavailable);
  source.LookAhead(experts, ExpertPriority::kDecode);
  for (int restart = 1; restart <= 3; ++restart) {
    RunningPlane plane(options);
    // Until the old store's end is noticed, its memory may still serve hits.
    while (source.counters().connections < static_cast<uint64_t>(restart)) {
      ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
      const absl::Status status = RunBatch(source, model, experts);
      ASSERT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
    }
    ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
    const absl::Status status = RunBatch(source, model, experts);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(source.counters().connections, static_cast<uint64_t>(restart));
  }
}

TEST(ArenaExpertSource, RefusesAStoreOfAnotherModel) {
  const TestModel model("other");
  DataPlaneOptions options = OptionsFor(model, "other");
  RunningPlane plane(options);
  ArenaExpertSource::Options wrong = ClientOptions(options);
  wrong.fingerprint[0] ^= 1;
  ArenaExpertSource source(wrong);
  absl::Status status;
  do {
    status = source.WaitUntilReady(50);
  } while (absl::IsUnavailable(status));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another model"));
}

TEST(ArenaExpertSource, ExpertsOutsideTheModelAreAnError) {
  const TestModel model("outside");
  DataPlaneOptions options = OptionsFor(model, "outside");
  RunningPlane plane(options);
  ArenaExpertSource source(ClientOptions(options));
  ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
  for (const ExpertId id : {ExpertId{0, 0}, ExpertId{1, 16}, ExpertId{9, 0}}) {
    const std::vector<ExpertId> experts = {{1, 1}, id};
    EXPECT_EQ(RunBatch(source, model, experts).code(), absl::StatusCode::kInvalidArgument);
  }
  ASSERT_TRUE(RunBatch(source, model, std::vector<ExpertId>{{1, 1}}).ok());
}

}  // namespace
}  // namespace strata::compute
