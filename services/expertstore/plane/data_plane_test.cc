// The store as its clients see it, by raw ArenaClients and by clients that break the rules.
#include "services/expertstore/plane/data_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>

#include "common/shm/attachment.h"
#include "common/shm/fd_socket.h"
#include "services/expertstore/test_support.h"

namespace strata::expertstore {
namespace {

using shm::ArenaClient;
using shm::Attachment;
using shm::Priority;
using shm::RequestOp;
using ::testing::HasSubstr;

// An arena with `slots` slots for a model of one size class, and nothing loaded in the background.
struct SmallStore {
  SmallStore(const std::string& name, uint32_t slots) : model(name, 1, 16) {
    options = OptionsFor(model, name);
    const SlotPlan all = PlanSlots(model.geometry, 1ull << 40, 1).value();
    options.arena_bytes = all.classes[0].slot_bytes * slots;
  }
  TestModel model;
  DataPlaneOptions options;
};

TEST(DataPlane, ADeadClientsPinsVanish) {
  SmallStore store("dead", 4);
  RunningPlane plane(store.options);
  auto first = Attach(store.options);
  for (uint32_t e = 0; e < 4; ++e) Fetch(first->client(), e);  // pins every slot
  auto second = Attach(store.options);
  second->client().Push({RequestOp::kWant, Priority::kDecode, 9});
  second->client().Ring();
  EXPECT_TRUE(Eventually([&] { return second->client().StoreStarved(); }));
  EXPECT_EQ(second->client().TryPin(9), std::nullopt);
  first.reset();
  EXPECT_TRUE(Eventually([&] { return second->client().TryPin(9).has_value(); }));
  EXPECT_TRUE(Eventually([&] { return plane->Status().clients == 1; }));
}

TEST(DataPlane, AMissWaitsForAPinAndGetsItsSlot) {
  SmallStore store("wait", 1);
  RunningPlane plane(store.options);
  auto first = Attach(store.options);
  auto second = Attach(store.options);
  const uint32_t slot = Fetch(first->client(), 0);
  second->client().Push({RequestOp::kWant, Priority::kDecode, 1});
  second->client().Ring();
  ASSERT_TRUE(Eventually([&] { return first->client().StoreStarved(); }));
  // Marked to go: nobody can pin it any more, its holder keeps it.
  ASSERT_TRUE(Eventually([&] { return !second->client().TryPin(0).has_value(); }));
  EXPECT_FALSE(first->client().TryPin(0).has_value());
  first->client().Unpin(slot);
  first->client().Ring();
  EXPECT_TRUE(Eventually([&] { return second->client().TryPin(1).has_value(); }));
  EXPECT_FALSE(second->client().StoreStarved());
}

// An expert that was asked for stays until the asker has pinned it, however great the demand.
TEST(DataPlane, WhatIsWantedIsHeldUntilPinned) {
  SmallStore store("held", 2);
  RunningPlane plane(store.options);
  auto first = Attach(store.options);
  auto second = Attach(store.options);
  first->client().Push({RequestOp::kWant, Priority::kDecode, 3});
  first->client().Ring();
  // (not by pinning it: that is what the other client does below)
  ASSERT_TRUE(Eventually([&] {
    return shm::Entry::Unpack(first->client().table().entry(3).load()).state ==
           shm::EntryState::kResident;
  }));
  for (uint32_t e = 4; e < 16; ++e) {
    second->client().Unpin(Fetch(second->client(), e));
    second->client().Ring();
  }
  EXPECT_TRUE(first->client().TryPin(3).has_value());
}

TEST(DataPlane, ManyWishesOfOneExpertAreOneRead) {
  SmallStore store("once", 4);
  store.options.slice_bytes = 1 << 20;
  RunningPlane plane(store.options);
  auto first = Attach(store.options);
  auto second = Attach(store.options);
  ASSERT_TRUE(Eventually([&] { return plane->Status().counts.background_left == 0; }));
  ASSERT_TRUE(Eventually([&] { return plane->Status().reads_in_flight == 0; }));
  const uint64_t before = plane->Status().bytes_read;
  for (int i = 0; i < 50; ++i) {
    first->client().Push({RequestOp::kWant, Priority::kPrompt, 12});
    second->client().Push({RequestOp::kWant, Priority::kDecode, 12});
  }
  first->client().Ring();
  second->client().Ring();
  EXPECT_TRUE(Eventually([&] { return first->client().TryPin(12).has_value(); }));
  EXPECT_LE(plane->Status().bytes_read - before, 20000u * 3 + 6 * 4096);
}

TEST(DataPlane, CancelledLookAheadDoesNotReachTheDrive) {
  SmallStore store("lookahead", 4);
  // Nothing is read until the test says so.
  std::atomic<bool> hold{false};
  std::atomic<int> reads{0};
  store.options.queue_depth = 1;
  RunningPlane plane(store.options, FakeFactory([&](const ReadOp&) -> std::optional<int64_t> {
                       while (hold.load()) std::this_thread::yield();
                       ++reads;
                       return std::nullopt;
                     }));
  ASSERT_TRUE(Eventually([&] {
    const auto status = plane->Status();
    return status.counts.background_left == 0 && status.reads_in_flight == 0 &&
           status.reads_waiting == 0;
  }));
  auto client = Attach(store.options);
  reads = 0;
  hold = true;
  client->client().Push({RequestOp::kWant, Priority::kDecode, 8});
  client->client().Ring();
  for (const uint32_t e : {9, 10, 11, 12}) {
    client->client().Push({RequestOp::kLookAhead, Priority::kLookAhead, e});
  }
  client->client().Push({RequestOp::kCancelLookAhead, Priority::kLookAhead, 0});
  client->client().Push({RequestOp::kLookAhead, Priority::kLookAhead, 13});
  hold = false;
  client->client().Ring();
  EXPECT_TRUE(Eventually([&] { return client->client().TryPin(8).has_value(); }));
  EXPECT_TRUE(Eventually([&] { return client->client().TryPin(13).has_value(); }));
  for (const uint32_t e : {9, 10, 11, 12}) {
    EXPECT_FALSE(client->client().TryPin(e).has_value()) << e;
  }
}

TEST(DataPlane, FirstRequestsAreServedWhileTheRestLoads) {
  const TestModel model("first", 3, 64);
  DataPlaneOptions options = OptionsFor(model, "first");
  std::vector<ReadOp> log;
  std::mutex mutex;
  std::atomic<bool> hold{true};
  options.queue_depth = 4;
  RunningPlane plane(options, FakeFactory([&](const ReadOp& op) -> std::optional<int64_t> {
                       while (hold.load()) std::this_thread::yield();
                       const std::lock_guard lock(mutex);
                       log.push_back(op);
                       return std::nullopt;
                     }));
  // Waiting in the socket and the ring when the first background read ends.
  std::unique_ptr<Attachment> client;
  std::thread attach([&] { client = Attach(options); });
  hold = false;
  attach.join();
  client->client().Unpin(Fetch(client->client(), 150));
  EXPECT_TRUE(Eventually([&] { return plane->Status().counts.resident == 192; }));
  // In file order, apart from the one that was asked for.
  uint64_t last = 0;
  int backwards = 0;
  for (const ReadOp& op : log) {
    if (op.file != 1) continue;  // the second part: one read or more an expert
    if (op.offset < last) ++backwards;
    last = op.offset;
  }
  EXPECT_LE(backwards, 1);
}

TEST(DataPlane, AProfileDecidesWhatASmallArenaLoadsFirst) {
  SmallStore store("profile", 4);
  store.options.profile.assign(16, 0.0);
  for (const uint32_t e : {3, 7, 11, 15}) store.options.profile[e] = e;
  RunningPlane plane(store.options);
  EXPECT_TRUE(Eventually([&] { return plane->Status().counts.resident == 4; }));
  auto client = Attach(store.options);
  for (uint32_t e = 0; e < 16; ++e) {
    EXPECT_EQ(client->client().TryPin(e).has_value(), e % 4 == 3) << e;
  }
  const std::vector<double> values = plane->Profile();
  EXPECT_EQ(values[7], 7);
  const std::vector<ExpertUses> uses = {{1, 2, 5}, {1, 99, 5}, {9, 0, 5}};
  EXPECT_EQ(plane->CountUses(uses, policy::Phase::kDecode), 5u);
  EXPECT_NEAR(plane->Profile()[2], 5, 0.5);
}

TEST(DataPlane, OneClientTooManyIsToldSo) {
  SmallStore store("many", 4);
  RunningPlane plane(store.options);
  std::vector<std::unique_ptr<Attachment>> clients;
  for (uint32_t i = 0; i < shm::kMaxClients; ++i) clients.push_back(Attach(store.options));
  const auto refused = Attachment::Connect(store.options.attach_path, store.options.fingerprint);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  clients.pop_back();
  EXPECT_TRUE(Eventually([&] {
    return Attachment::Connect(store.options.attach_path, store.options.fingerprint).ok();
  }));
}

TEST(DataPlane, SilentConnectionsDoNotKeepOthersOut) {
  SmallStore store("silent", 4);
  RunningPlane plane(store.options);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(shm::ConnectTo(store.options.attach_path).value());
  auto client = Attach(store.options);
  client->client().Unpin(Fetch(client->client(), 5));
}

// Random bytes over the own block, random requests, random ends: the store goes on serving a client
// that behaves.
TEST(DataPlane, SurvivesHostileClients) {
  SmallStore store("hostile", 4);
  RunningPlane plane(store.options);
  std::atomic<bool> stop{false};
  std::thread villain([&] {
    std::mt19937_64 random(6);
    while (!stop.load()) {
      auto attachment = Attach(store.options);
      ArenaClient& client = attachment->client();
      if (random() % 2 == 0) {
        for (int i = 0; i < 2000; ++i) {
          client.Push({static_cast<RequestOp>(1 + random() % 4),
                       static_cast<Priority>(random() % 4), static_cast<uint32_t>(random() % 16)});
          if (random() % 64 == 0) client.Ring();
        }
      } else {
        const std::span<std::byte> block = attachment->block();
        auto* words = reinterpret_cast<std::atomic<uint64_t>*>(block.data());
        for (int i = 0; i < 500; ++i) {
          words[random() % (block.size() / 8)].store(random(), std::memory_order_relaxed);
        }
        client.Ring();
      }
      client.Ring();
    }
  });
  auto client = Attach(store.options);
  for (int round = 0; round < 300; ++round) {
    const uint32_t expert = round * 7 % 16;
    const uint32_t slot = Fetch(client->client(), expert);
    const auto& layer = client->client().table().layers()[1];
    const auto& size_class = client->client().table().classes()[0];
    const std::byte* parts[3];
    for (uint32_t p = 0; p < 3; ++p) {
      parts[p] =
          client->client().arena() + shm::TableView::PartOffset(layer, size_class, expert, slot, p);
    }
    ASSERT_TRUE(store.model.Same(1, expert, parts));
    client->client().Unpin(slot);
    client->client().Ring();
  }
  stop = true;
  villain.join();
}

TEST(DataPlane, ErrorsAtTheStartAreClear) {
  SmallStore store("start", 4);
  DataPlaneOptions options = store.options;
  options.geometry.files[0] = "/nowhere/model.gguf";
  EXPECT_THAT(std::string(DataPlane::Create(options).status().message()),
              HasSubstr("/nowhere/model.gguf"));
  options = store.options;
  options.arena_bytes = 4096;
  EXPECT_EQ(DataPlane::Create(options).status().code(), absl::StatusCode::kResourceExhausted);
  options = store.options;
  options.attach_path = "/nowhere/experts.sock";
  EXPECT_THAT(std::string(DataPlane::Create(options).status().message()),
              HasSubstr("/nowhere/experts.sock"));
  RunningPlane plane(store.options);
  EXPECT_EQ(DataPlane::Create(store.options).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST(DataPlane, UnsealedAndBufferedWork) {
  SmallStore store("unsealed", 4);
  store.options.sealed = false;
  store.options.direct_io = false;
  RunningPlane plane(store.options);
  auto client = Attach(store.options);
  client->client().Unpin(Fetch(client->client(), 5));
  EXPECT_FALSE(plane->Status().direct_io);
  EXPECT_FALSE(plane->Status().sealed);
}

}  // namespace
}  // namespace strata::expertstore
