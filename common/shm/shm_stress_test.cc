// Clients pin and read while a store evicts and overwrites. Every slot's bytes are a function of
// the expert in them, so a single read of a wrong or half-written slot is noticed; under
// ThreadSanitizer the same test also checks that every such access is ordered.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "common/base/memory_map.h"
#include "common/shm/arena_client.h"
#include "common/shm/client_peer.h"
#include "common/shm/memfd.h"
#include "common/shm/table.h"

namespace strata::shm {
namespace {

constexpr uint32_t kExperts = 24;
constexpr uint32_t kSlots = 5;
constexpr uint64_t kSlotBytes = 4096;
constexpr int kEvictions = 6000;
constexpr uint64_t kHits = 30000;

uint64_t Word(uint32_t expert, uint32_t generation, uint64_t i) {
  return (uint64_t{expert} << 48) ^ (uint64_t{generation} << 20) ^ (i * 0x9e3779b97f4a7c15);
}

MemoryMap Region(const char* name, uint64_t bytes) {
  const UniqueFd fd = CreateMemfd(name, bytes).value();
  return MemoryMap::Shared(fd.get(), bytes, /*writable=*/true).value();
}

// Memory of one store and `clients` clients, all in this process (and in its forked children).
struct Plane {
  explicit Plane(int clients) {
    LayerRecord layer;
    layer.experts = kExperts;
    layer.parts = 1;
    layer.bytes[0] = kSlotBytes;
    ClassRecord size_class;
    size_class.slots = kSlots;
    size_class.slot_bytes = kSlotBytes;
    arena = Region("arena", kSlots * kSlotBytes);
    const uint64_t table_bytes = TableWriter::BytesFor(1, 1, kExperts);
    table = Region("table", table_bytes);
    writer = TableWriter({table.data(), table.size()}, {&layer, 1}, {&size_class, 1}, arena.size(),
                         Fingerprint{});
    control = Region("control", 4096);
    for (int i = 0; i < clients; ++i) {
      blocks.push_back(Region("block", BlockLayout::For(kSlots).bytes));
      peers.emplace_back(std::span(blocks[i].data(), blocks[i].size()), kSlots, kExperts);
    }
  }
  ArenaClient Client(int i) {
    const TableView view = TableView::Open(table.bytes(), arena.size(), Fingerprint{}).value();
    return ArenaClient(view, arena.bytes(), {blocks[i].data(), blocks[i].size()}, -1);
  }

  // Set by the store when it has evicted often enough.
  std::atomic<uint32_t>& stop() {
    return *reinterpret_cast<std::atomic<uint32_t>*>(control.data());
  }

  MemoryMap arena;
  MemoryMap control;
  MemoryMap table;
  TableWriter writer;
  std::vector<MemoryMap> blocks;
  std::vector<ClientPeer> peers;
};

// Evicts and loads at random until there were enough evictions and hits of every client, or three
// seconds have passed: where many processes share few cores, a client is often put to sleep with a
// pin, and every eviction of its slot waits for that.
void RunStore(Plane& plane, int evictions) {
  std::mt19937 random(1);
  std::vector<uint32_t> in_slot(kSlots, kExperts);
  const auto enough_hits = [&] {
    for (const ClientPeer& peer : plane.peers) {
      if (peer.hits() < kHits) return false;
    }
    return true;
  };
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  for (int round = 0; round < evictions || !enough_hits(); ++round) {
    if (std::chrono::steady_clock::now() > limit) break;
    if (round % 4 == 0) std::this_thread::yield();  // on few cores, let the clients in
    const uint32_t slot = random() % kSlots;
    if (const uint32_t old = in_slot[slot]; old != kExperts) {
      Entry entry = plane.writer.entry(old);
      entry.state = EntryState::kEvicting;
      plane.writer.SetEntry(old, entry);
      const auto pinned = [&] {
        for (const ClientPeer& peer : plane.peers) {
          if (peer.Pins(slot)) return true;
        }
        return false;
      };
      while (pinned()) std::this_thread::yield();
      entry.state = EntryState::kAbsent;
      plane.writer.SetEntry(old, entry);
    }
    uint32_t next;
    do {
      next = random() % kExperts;
    } while (plane.writer.entry(next).state != EntryState::kAbsent);
    Entry entry = plane.writer.entry(next);
    entry = {EntryState::kLoading, slot, entry.generation + 1};
    plane.writer.SetEntry(next, entry);
    auto* words = reinterpret_cast<uint64_t*>(plane.arena.data() + slot * kSlotBytes);
    for (uint64_t i = 0; i < kSlotBytes / 8; ++i) words[i] = Word(next, entry.generation, i);
    entry.state = EntryState::kResident;
    plane.writer.SetEntry(next, entry);
    in_slot[slot] = next;
  }
  plane.stop().store(1);
}

// Returns the number of wrong words seen.
uint64_t RunClient(ArenaClient client, const std::atomic<uint32_t>& stop, uint32_t seed) {
  std::mt19937 random(seed);
  uint64_t wrong = 0;
  while (stop.load(std::memory_order_relaxed) == 0) {
    const uint32_t expert = random() % kExperts;
    const std::optional<uint32_t> slot = client.TryPin(expert);
    if (!slot) {
      std::this_thread::yield();
      continue;
    }
    // Stable while pinned: the store cannot change the entry's generation.
    const Entry entry = Entry::Unpack(client.table().entry(expert).load());
    const auto* words = reinterpret_cast<const uint64_t*>(client.arena() + *slot * kSlotBytes);
    for (uint64_t i = 0; i < kSlotBytes / 8; ++i) {
      wrong += words[i] != Word(expert, entry.generation, i) ? 1 : 0;
    }
    client.Unpin(*slot);
    client.CountBatch(1, 0);
  }
  return wrong;
}

TEST(PinProtocol, ThreadsNeverSeeAForeignSlot) {
  constexpr int kClients = 3;
  Plane plane(kClients);
  std::atomic<uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] { wrong += RunClient(plane.Client(i), plane.stop(), i + 7); });
  }
  RunStore(plane, kEvictions);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
  for (int i = 0; i < kClients; ++i) {
    for (uint32_t slot = 0; slot < kSlots; ++slot) EXPECT_FALSE(plane.peers[i].Pins(slot));
  }
}

TEST(PinProtocol, ProcessesNeverSeeAForeignSlot) {
  constexpr int kClients = 3;
  Plane plane(kClients);
  std::vector<pid_t> children;
  for (int i = 0; i < kClients; ++i) {
    const pid_t pid = fork();
    if (pid == 0) _exit(RunClient(plane.Client(i), plane.stop(), i + 70) == 0 ? 0 : 1);
    children.push_back(pid);
  }
  RunStore(plane, kEvictions);
  for (const pid_t pid : children) {
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

// The request ring under wrap-around, with a producer and a consumer at full speed.
TEST(RequestRing, KeepsOrderAndContent) {
  Plane plane(1);
  constexpr uint32_t kRequests = 3 * kRequestRing + 17;
  std::thread producer([&] {
    ArenaClient client = plane.Client(0);
    for (uint32_t i = 0; i < kRequests;) {
      const Request request{RequestOp::kWant, static_cast<Priority>(i % 3), i % kExperts};
      if (client.Push(request)) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  std::vector<Request> got;
  while (got.size() < kRequests) {
    ASSERT_TRUE(plane.peers[0].TakeRequests(&got).ok());
    std::this_thread::yield();
  }
  producer.join();
  ASSERT_EQ(got.size(), kRequests);
  for (uint32_t i = 0; i < kRequests; ++i) {
    ASSERT_EQ(got[i].expert, i % kExperts);
    ASSERT_EQ(got[i].priority, static_cast<Priority>(i % 3));
  }
}

// A client that sleeps on the wake word is woken, however the two sides interleave.
TEST(Wake, IsNeverLost) {
  Plane plane(1);
  ArenaClient client = plane.Client(0);
  constexpr uint32_t kRounds = 300;
  std::atomic<uint32_t> seen{0};
  std::thread waiter([&] {
    while (seen.load() < kRounds) {
      const uint32_t wake = client.WakeCount();
      // A lost wake would sleep for the whole time-out and fail the test's time limit.
      if (wake == seen.load()) client.Wait(wake, /*spins=*/10, /*timeout_ms=*/60000);
      seen.store(client.WakeCount());
    }
  });
  for (uint32_t i = 0; i < kRounds; ++i) {
    plane.peers[0].Wake();
    while (seen.load() <= i) std::this_thread::yield();
  }
  waiter.join();
  EXPECT_EQ(seen.load(), kRounds);
}

}  // namespace
}  // namespace strata::shm
