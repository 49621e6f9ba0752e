// One store and two clients, the real code of both sides, in all interleavings of their accesses to
// shared memory with up to two preemptions, also while the arena shrinks and grows and while a
// client dies. In each of them:
//   - whoever has pinned an expert reads that expert's bytes until he unpins it,
//   - nobody waits for ever (no wake and no ring of the bell is lost; there are no timeouts here),
//   - what is to drain does, and as many slots have memory as should have.
//
// That the test can fail was tried by breaking the code. It found: pins looked at before the entry
// is marked as evicting; a pin without the second look at the entry; `starved` set without another
// look at the pins; a client that unpins without looking at `starved`; a refused pin that does not
// ring; a wake before the entry is published; a look at the wake word after the look at the entry;
// an expert evicted before the one who waits for it has pinned it; memory given back while its slot
// drains. And it found a real fault: a shrinking store that slept while a wish was being given up.
#include "services/expertstore/plane/residency.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>

#include "common/base/memory_map.h"
#include "common/base/unique_fd.h"
#include "common/policy/make_policy.h"
#include "common/shm/arena_client.h"
#include "common/shm/client_peer.h"
#include "common/shm/futex.h"
#include "common/shm/table.h"
#include "tests/interleavings/explorer.h"

namespace strata::shm {
namespace {

// Wakes of each word: futex(2) without the kernel.
std::map<const void*, uint64_t>& Wakes() {
  static std::map<const void*, uint64_t> wakes;
  return wakes;
}

}  // namespace

void FutexWait(const Atomic<uint32_t>& word, uint32_t expected, int /*timeout_ms*/) {
  interleavings::Step();
  if (word.load(std::memory_order_relaxed) != expected) return;
  const uint64_t before = Wakes()[&word];
  interleavings::Explorer::Current().BlockUntil(
      [&word, before] { return Wakes()[&word] != before; });
}

void FutexWakeAll(const Atomic<uint32_t>& word) {
  interleavings::Step();
  ++Wakes()[&word];
}

}  // namespace strata::shm

namespace strata::interleavings {
namespace {

using expertstore::Arena;
using expertstore::ExpertFiles;
using expertstore::ExpertMap;
using expertstore::LayerPlaces;
using expertstore::ModelFiles;
using expertstore::ReadEngine;
using expertstore::ReadOp;
using expertstore::ReadQueue;
using expertstore::ReadResult;
using expertstore::Residency;
using expertstore::SlotMemory;
using expertstore::SlotPlan;
using shm::ArenaClient;
using shm::ClientPeer;
using shm::Priority;
using shm::RequestOp;

constexpr uint32_t kExperts = 3;
constexpr uint64_t kExpertBytes = 4096;
constexpr uint32_t kClients = 2;

// The drive: an expert's first and last word is its number plus one. The first is there when the
// read begins, the last when it ends.
class Drive : public ReadEngine {
 public:
  uint32_t depth() const override { return 4; }
  void Queue(const ReadOp& op) override {
    reads_.push_back(op);
    Put(op, 0);
  }
  void Flush() override {}
  size_t Reap(std::span<ReadResult> results) override {
    size_t count = 0;
    for (; count < results.size() && !reads_.empty(); ++count) {
      const ReadOp op = reads_.back();
      reads_.pop_back();
      Put(op, kExpertBytes - 8);
      results[count] = {op.tag, op.bytes};
    }
    return count;
  }
  int fd() const override { return -1; }
  const char* name() const override { return "model"; }
  bool busy() const { return !reads_.empty(); }

 private:
  static void Put(const ReadOp& op, uint64_t at) {
    const uint64_t value = op.offset / kExpertBytes + 1;
    std::memcpy(op.dest + at, &value, sizeof(value));
  }
  std::vector<ReadOp> reads_;
};

// What all runs share, since making it takes long: memory, a file, the plan of slots.
struct Ground {
  explicit Ground(uint32_t slots) {
    path = testing::TempDir() + "interleavings_" + std::to_string(getpid());
    std::ofstream(path) << std::string(kExperts * kExpertBytes, '\0');
    files.emplace(ModelFiles::Open(std::vector<std::string>{path}, /*direct=*/false).value());
    LayerPlaces layer;
    layer.experts = kExperts;
    layer.parts = {{0, 0, kExpertBytes, kExpertBytes}};
    experts.files = {path};
    experts.files_per_copy = 1;
    experts.places = {layer};
    plan = expertstore::PlanSlots(experts.places, slots * kExpertBytes, 1).value();
    arena.emplace(Arena::Create(plan.bytes, plan.bytes).value());
    for (uint32_t c = 0; c < kClients; ++c) {
      blocks.push_back(
          MemoryMap::Anonymous(shm::BlockLayout::For(plan.slots).bytes, false).value());
      doorbell = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
  }
  ~Ground() { unlink(path.c_str()); }

  std::string path;
  std::optional<ModelFiles> files;
  ExpertFiles experts;
  SlotPlan plan;
  std::optional<Arena> arena;
  std::vector<MemoryMap> blocks;
  UniqueFd doorbell;  // one for all: the store looks at every ring whichever bell rang
};

struct Script {
  std::vector<uint32_t> uses[kClients];  // experts, one after the other
  std::vector<uint32_t> peeks;           // by the second client, at first: used if they are there
  bool second_dies = false;              // with a pin, after its last use
  std::vector<uint32_t> resize;          // to so many slots, at any time, one after the other
};

class PlaneWorld : public World {
 public:
  PlaneWorld(Ground& ground, const Script& script)
      : ground_(ground),
        script_(script),
        map_(ground.experts, ground.plan),
        table_memory_(shm::TableWriter::BytesFor(1, 1, kExperts) / 64 + 1),
        table_(TableBytes(), ground.plan.layers, ground.plan.classes, ground.arena->size(), {}),
        reads_(drive_, *ground.files, {}),
        hotness_(kExperts),
        policy_(policy::Make("lru", Shape(), hotness_).value()),
        memory_(ground.plan, *ground.arena, nullptr),
        residency_(ground.plan, map_, memory_, table_, reads_, hotness_, *policy_) {
    shm::Wakes().clear();
    uint64_t rings;
    [[maybe_unused]] const ssize_t got = read(ground.doorbell.get(), &rings, sizeof(rings));
    view_ = shm::TableView::Open(TableBytes(), ground.arena->size(), {}).value();
    for (uint32_t c = 0; c < kClients; ++c) {
      const std::span block(ground.blocks[c].data(), ground.blocks[c].size());
      peers_.push_back(std::make_unique<ClientPeer>(block, ground.plan.slots, kExperts));
      residency_.AddClient(c, peers_.back().get());
      participants.emplace_back([this, c] { RunClient(c); });
    }
    participants.emplace_back([this] { RunStore(); });
  }

  std::string Check() override {
    for (uint32_t slot = 0; slot < ground_.plan.slots; ++slot) {
      for (uint32_t c = 0; c < kClients; ++c) {
        if (!gone_[c] && peers_[c]->Pins(slot)) return "a pin is left";
      }
    }
    if (!residency_.settled()) return "slots that should have memory have none, or the reverse";
    return "";
  }

 private:
  std::span<std::byte> TableBytes() {
    return {reinterpret_cast<std::byte*>(table_memory_.data()), table_memory_.size() * 64};
  }
  policy::Shape Shape() const {
    return {
        std::vector<uint32_t>(kExperts), std::vector<uint32_t>(kExperts), {ground_.plan.slots}, 1};
  }

  // As ArenaExpertSource does it, one expert at a time.
  uint32_t Pin(ArenaClient& client, uint32_t expert) {
    std::optional<uint32_t> slot = client.TryPin(expert);
    if (slot) return *slot;
    client.Push({RequestOp::kWant, Priority::kDecode, expert});
    client.Ring();
    for (;;) {
      const uint32_t wake = client.WakeCount();
      slot = client.TryPin(expert);
      if (slot) break;
      client.Wait(wake, /*spins=*/0, /*timeout_ms=*/-1);
    }
    client.Push({RequestOp::kDone, Priority::kDecode, expert});
    if (client.StoreStarved()) client.Ring();
    return *slot;
  }

  void CheckBytes(uint32_t client, uint32_t expert, uint32_t slot) {
    for (const uint64_t at : {uint64_t{0}, kExpertBytes - 8}) {
      uint64_t value;
      std::memcpy(&value, ground_.arena->data() + slot * kExpertBytes + at, sizeof(value));
      if (value != expert + 1) {
        Explorer::Current().Fail("client " + std::to_string(client) + " pinned expert " +
                                 std::to_string(expert) + " and reads of expert " +
                                 std::to_string(static_cast<int64_t>(value) - 1));
      }
      Step();
    }
  }

  void RunClient(uint32_t number) {
    ArenaClient client(view_, {ground_.arena->data(), ground_.arena->size()},
                       {ground_.blocks[number].data(), ground_.blocks[number].size()},
                       ground_.doorbell.get());
    if (number == 1) {
      for (const uint32_t expert : script_.peeks) {
        const std::optional<uint32_t> slot = client.TryPin(expert);
        if (!slot) continue;
        CheckBytes(number, expert, *slot);
        client.Unpin(*slot);
        if (client.StoreStarved()) client.Ring();
      }
    }
    const std::vector<uint32_t>& uses = script_.uses[number];
    for (size_t i = 0; i < uses.size(); ++i) {
      const uint32_t slot = Pin(client, uses[i]);
      CheckBytes(number, uses[i], slot);
      if (i + 1 == uses.size() && number == 1 && script_.second_dies) {
        dead_ = true;
        return;
      }
      client.Unpin(slot);
      if (client.StoreStarved()) client.Ring();
    }
    ++done_;
  }

  // As DataPlane::Run, without its time limit on sleeping.
  void RunStore() {
    size_t resized = 0;
    std::vector<shm::Request> requests;
    for (;;) {
      if (resized < script_.resize.size() && (Finished() || Explorer::Current().Choose(2) == 1)) {
        residency_.SetSlots({&script_.resize[resized++], 1});
      }
      if (dead_ && !gone_[1]) {
        residency_.RemoveClient(1);
        gone_[1] = true;
        std::memset(ground_.blocks[1].data(), 0, shm::BlockLayout::For(ground_.plan.slots).uses);
      }
      for (uint32_t c = 0; c < kClients; ++c) {
        if (gone_[c]) continue;
        requests.clear();
        if (!peers_[c]->TakeRequests(&requests).ok()) Explorer::Current().Fail("a bad request");
        for (const shm::Request& request : requests) {
          if (!residency_.Handle(c, request).ok()) Explorer::Current().Fail("a bad request");
        }
      }
      if (residency_.Advance()) continue;
      if (Finished() && resized == script_.resize.size() && residency_.settled()) return;
      Explorer::Current().BlockUntil([&] {
        pollfd bell{ground_.doorbell.get(), POLLIN, 0};
        return drive_.busy() || poll(&bell, 1, 0) > 0 || (dead_ && !gone_[1]) ||
               (Finished() && (resized < script_.resize.size() || residency_.settled()));
      });
      uint64_t rings;
      [[maybe_unused]] const ssize_t got = read(ground_.doorbell.get(), &rings, sizeof(rings));
    }
  }
  bool Finished() const { return done_ + (gone_[1] ? 1 : 0) == kClients; }

  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };

  Ground& ground_;
  const Script& script_;
  const ExpertMap map_;
  std::vector<Line> table_memory_;
  shm::TableWriter table_;
  shm::TableView view_;
  Drive drive_;
  ReadQueue reads_;
  policy::Hotness hotness_;
  std::unique_ptr<policy::EvictionPolicy> policy_;
  SlotMemory memory_;
  Residency residency_;
  std::vector<std::unique_ptr<ClientPeer>> peers_;
  bool dead_ = false;
  bool gone_[kClients] = {};
  uint32_t done_ = 0;
};

void ExpectAllWell(uint32_t slots, uint32_t preemptions, const Script& script) {
  Ground ground(slots);
  Explorer explorer(preemptions);
  const Outcome outcome =
      explorer.Explore([&] { return std::make_unique<PlaneWorld>(ground, script); });
  EXPECT_EQ(outcome.failure, "");
  std::printf("%llu runs, %llu steps\n", static_cast<unsigned long long>(outcome.runs),
              static_cast<unsigned long long>(outcome.steps));
  EXPECT_GT(outcome.runs, 1000u);  // something was interleaved
}

TEST(Interleavings, TwoClientsAndOneSlot) { ExpectAllWell(1, 2, {.uses = {{0}, {1}}}); }

TEST(Interleavings, TheSameExpertForBoth) { ExpectAllWell(1, 2, {.uses = {{0, 1}, {0}}}); }

TEST(Interleavings, TwoSlotsForThreeExperts) { ExpectAllWell(2, 2, {.uses = {{0, 2}, {1}}}); }

TEST(Interleavings, AClientThatOnlyTakesWhatIsThere) {
  ExpectAllWell(1, 2, {.uses = {{0, 1}, {}}, .peeks = {0, 0}});
}

TEST(Interleavings, TheArenaShrinks) {
  ExpectAllWell(2, 1, {.uses = {{0, 1}, {1}}, .resize = {1}});
}

TEST(Interleavings, TheArenaShrinksAndGrows) {
  ExpectAllWell(2, 1, {.uses = {{0}, {1}}, .resize = {1, 2}});
}

TEST(Interleavings, AClientDiesWithAPin) {
  ExpectAllWell(1, 2, {.uses = {{0}, {1}}, .second_dies = true});
}

}  // namespace
}  // namespace strata::interleavings
