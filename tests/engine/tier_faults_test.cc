// Whatever goes wrong under the engine - the drive errs, a client dies with its pins, the store is
// replaced, the arena shrinks, another compute takes from the same store - the tokens are those of
// the run with all experts in memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "common/gguf/expert_geometry.h"
#include "services/compute/experts/arena_expert_source.h"
#include "services/expertstore/test_support.h"
#include "tests/engine/local_engine.h"

namespace strata::compute {
namespace {

using expertstore::DataPlaneOptions;
using expertstore::FakeFactory;
using expertstore::ReadOp;
using expertstore::RunningPlane;

constexpr const char* kModel = "deploy/demo/strata-demo.gguf";
constexpr uint32_t kTokens = 40;

std::vector<uint32_t> Prompt(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> ids(80);
  for (uint32_t& id : ids) id = 100 + random() % 1000;
  return ids;
}

// What both prompts are answered with when nothing goes wrong.
const std::vector<uint32_t>& Want(uint32_t seed) {
  static const std::vector<std::vector<uint32_t>> answers = [] {
    const auto mapped = OpenLocal(kModel, SmallConfig()).value();
    std::vector<std::vector<uint32_t>> made;
    for (uint32_t s = 0; s < 2; ++s) {
      made.push_back(GenerateGreedy(mapped->engine(), Prompt(s), kTokens).value());
    }
    return made;
  }();
  return answers[seed];
}

// A store with room for a quarter of the experts.
DataPlaneOptions StoreOptions() {
  const auto file = gguf::Model::Open(kModel).value();
  DataPlaneOptions options;
  options.geometry = gguf::ReadExpertGeometry(*file).value();
  const auto hash = file->Fingerprint();
  std::memcpy(options.fingerprint.data(), hash.data(), options.fingerprint.size());
  options.experts_per_token = 2;
  options.arena_bytes =
      expertstore::PlanSlots(options.geometry, 1ull << 40, 1).value().all_bytes / 4;
  options.attach_path = expertstore::TestPath("tier_faults.sock");
  options.slice_bytes = 32 << 10;
  return options;
}

// One compute.
class Compute {
 public:
  explicit Compute(const DataPlaneOptions& options) {
    auto source = std::make_unique<ArenaExpertSource>(
        ArenaExpertSource::Options{options.attach_path, options.fingerprint});
    EXPECT_TRUE(source->WaitUntilReady(20000).ok());
    v1::ComputeConfig config = SmallConfig();
    config.set_prompt_routing("full");
    runtime_ = Runtime::Open(gguf::Model::Open(kModel).value(), config, std::move(source)).value();
    EXPECT_TRUE(runtime_->StartEngine(nullptr).ok());
  }
  void ExpectTheTokens(uint32_t seed) {
    const auto got = GenerateGreedy(runtime_->engine(), Prompt(seed), kTokens);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, Want(seed));
  }
  uint64_t misses() { return runtime_->experts()->counters().misses; }

 private:
  std::unique_ptr<Runtime> runtime_;
};

TEST(TierFaults, TheDriveErrsAndDeliversLessThanAsked) {
  const DataPlaneOptions options = StoreOptions();
  // The first read of every place fails, in turn by an error, by nothing and by a part.
  std::set<std::pair<uint32_t, uint64_t>> failed;
  uint64_t faults = 0;
  RunningPlane store(options, FakeFactory([&](const ReadOp& op) -> std::optional<int64_t> {
                       const std::pair place(op.file, op.offset);
                       if (failed.erase(place) > 0) return std::nullopt;
                       failed.insert(place);
                       switch (faults++ % 3) {
                         case 0:
                           return -EIO;
                         case 1:
                           return 0;
                         default:
                           return op.bytes / 2;
                       }
                     }));
  Compute compute(options);
  for (const uint32_t seed : {0, 1}) compute.ExpectTheTokens(seed);
  EXPECT_GT(compute.misses(), 100u);
  EXPECT_GT(store->Status().read_errors, 100u);
  EXPECT_EQ(store->Status().counts.failed_loads, 0u);
}

TEST(TierFaults, AClientDiesWithPinsHeld) {
  const DataPlaneOptions options = StoreOptions();
  RunningPlane store(options);
  Compute compute(options);
  auto pinner = expertstore::Attach(options);
  // Every slot that it can get; the engine has to wait for this one's end.
  uint32_t pinned = 0;
  for (int lap = 0; lap < 50 && pinned < store->plan().slots; ++lap) {
    for (uint32_t e = 0; e < store->plan().experts; ++e) {
      pinned += pinner->client().TryPin(e) ? 1 : 0;
    }
  }
  std::thread death([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    pinner.reset();
  });
  compute.ExpectTheTokens(0);
  death.join();
  compute.ExpectTheTokens(1);
}

TEST(TierFaults, TheStoreIsReplacedUnderLoad) {
  const DataPlaneOptions options = StoreOptions();
  std::optional<RunningPlane> store(options);
  Compute compute(options);
  std::atomic<bool> done{false};
  std::thread replace([&] {
    while (!done) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      store.reset();
      store.emplace(options);
    }
  });
  for (int lap = 0; lap < 2; ++lap) {
    for (const uint32_t seed : {0, 1}) compute.ExpectTheTokens(seed);
  }
  done = true;
  replace.join();
}

TEST(TierFaults, TheArenaShrinksWhileTwoComputesShareIt) {
  const DataPlaneOptions options = StoreOptions();
  RunningPlane store(options);
  Compute first(options);
  Compute second(options);
  std::atomic<bool> done{false};
  std::thread resize([&] {
    std::mt19937 random(1);
    const uint64_t least = store->plan().least_bytes;
    while (!done) {
      const uint64_t limit = least + random() % (store->plan().bytes - least);
      EXPECT_TRUE(store->SetMemoryLimit(limit).ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  std::thread other([&] {
    for (const uint32_t seed : {1, 0}) second.ExpectTheTokens(seed);
  });
  for (const uint32_t seed : {0, 1}) first.ExpectTheTokens(seed);
  other.join();
  done = true;
  resize.join();
  EXPECT_GT(first.misses() + second.misses(), 100u);
}

}  // namespace
}  // namespace strata::compute
