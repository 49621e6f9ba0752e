// The step loop must not allocate: this binary counts every operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "services/compute/experts/arena_expert_source.h"
#include "services/expertstore/test_support.h"

namespace {

thread_local bool counting = false;
thread_local int allocations = 0;

}  // namespace

void* operator new(size_t bytes) {
  if (counting) ++allocations;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { std::free(memory); }

namespace strata::compute {
namespace {

TEST(ArenaExpertSource, NeitherHitsNorMissesAllocate) {
  const expertstore::TestModel model("alloc", 3, 32);
  expertstore::DataPlaneOptions options = expertstore::OptionsFor(model, "alloc");
  options.arena_bytes = expertstore::PlanSlots(model.geometry, 1ull << 40, 1)->all_bytes / 4;
  expertstore::RunningPlane plane(options);
  ArenaExpertSource source({options.attach_path, options.fingerprint});
  ASSERT_TRUE(source.WaitUntilReady(20000).ok());
  std::vector<ExpertId> batch(32);
  for (int step = 0; step < 60; ++step) {
    for (uint16_t e = 0; e < 32; ++e) batch[e] = {static_cast<uint16_t>(1 + step % 3), e};
    const size_t count = step % 2 == 0 ? 32 : 4;
    counting = true;
    source.LookAhead({batch.data(), 2}, ExpertPriority::kDecode);
    source.Begin({batch.data(), count}, ExpertPriority::kDecode);
    bool ok = true;
    for (;;) {
      const auto ready = source.Next();
      ok = ok && ready.ok();
      if (!ready.ok() || ready->empty()) break;
    }
    source.End();
    counting = false;
    ASSERT_TRUE(ok);
  }
  EXPECT_EQ(allocations, 0);
  EXPECT_GT(source.counters().misses, 60u);
  EXPECT_GT(source.counters().hits, 0u);
}

}  // namespace
}  // namespace strata::compute
