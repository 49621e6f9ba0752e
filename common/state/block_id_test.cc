#include "common/state/block_id.h"

#include <gtest/gtest.h>

#include <set>

namespace strata::state {
namespace {

TEST(BlockId, EveryIngredientMatters) {
  std::set<BlockId> ids;
  ids.insert(RootId("m1", "l1", ""));
  ids.insert(RootId("m2", "l1", ""));
  ids.insert(RootId("m1", "l2", ""));
  ids.insert(RootId("m1", "l1", "alice"));
  ids.insert(RootId("m1l1", "", ""));  // field borders count
  const BlockId root = RootId("m1", "l1", "");
  const uint32_t a[] = {1, 2, 3}, b[] = {1, 2, 4};
  ids.insert(ChildId(root, a));
  ids.insert(ChildId(root, b));
  ids.insert(ChildId(ChildId(root, a), b));
  EXPECT_EQ(ids.size(), 8u);
  EXPECT_EQ(ChildId(root, a), ChildId(RootId("m1", "l1", ""), a));
}

// Stored databases depend on this value: a change of the derivation needs a new version string.
TEST(BlockId, IsStableAcrossReleases) {
  const uint32_t tokens[] = {0, 1, 65536, 4000000000u};
  EXPECT_EQ(ChildId(RootId("fingerprint", "layout", "tenant"), tokens).ToHex(),
            "f9a6816b70597a69e3b484980b2899fe");
}

TEST(BlockId, LineagesShareNoIds) {
  const BlockId root = RootId("m", "l", "");
  const uint32_t a[] = {1, 2, 3};
  std::set<BlockId> ids;
  for (const Lineage lineage : {Lineage::kExact, Lineage::kSafe, Lineage::kFast}) {
    const BlockId first = ChildId(root, Lineage::kExact, lineage, a);
    ids.insert(first);
    ids.insert(ChildId(first, lineage, lineage, a));
  }
  EXPECT_EQ(ids.size(), 6u);
  EXPECT_EQ(ChildId(root, Lineage::kExact, Lineage::kExact, a), ChildId(root, a));
}

TEST(BlockId, CheckpointsShareNoIdsWithBlocks) {
  const BlockId root = RootId("m", "l", "");
  const uint32_t a[] = {1, 2, 3};
  std::set<BlockId> ids;
  for (const Lineage lineage : {Lineage::kExact, Lineage::kSafe, Lineage::kFast}) {
    ids.insert(ChildId(root, Lineage::kExact, lineage, a));
    ids.insert(CheckpointId(root, lineage, a));
    ids.insert(CheckpointId(root, lineage, {}));
    ids.insert(CheckpointId(ChildId(root, a), lineage, {}));
  }
  EXPECT_EQ(ids.size(), 12u);
}

TEST(BlockId, RawRoundTrip) {
  const BlockId id = RootId("a", "b", "c");
  EXPECT_EQ(BlockIdFromRaw(id.ToString()), id);
  EXPECT_EQ(BlockIdFromRaw("short"), std::nullopt);
}

}  // namespace
}  // namespace strata::state
