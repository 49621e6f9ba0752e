#include "services/kvstore/blocks/block_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace strata::kvstore {
namespace {

BlockId Id(uint32_t n) { return state::ChildId({}, std::span(&n, 1)); }

BlockRecord Record(const BlockId& parent, uint64_t used, std::vector<uint32_t> tokens = {1, 2},
                   uint64_t bytes = 10) {
  return {parent, 0, std::move(tokens), bytes, 0, used, false};
}

TEST(BlockRecord, RoundTripAndDamage) {
  BlockRecord record = Record(Id(7), 123456789, {5, 6, 7}, 999);
  record.first_token = 64;
  record.checksum = 0xDEADBEEFCAFE;
  record.pinned = true;
  record.root = Id(99);
  record.lineage = state::Lineage::kFast;
  record.uses = 17;
  record.extent = {3, 8192, 4096};
  record.returned = true;
  record.kind = Kind::kCheckpoint;
  record.older = kOldest;
  const std::string bytes = EncodeRecord(record);
  const auto decoded = DecodeRecord(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->parent, record.parent);
  EXPECT_EQ(decoded->first_token, 64u);
  EXPECT_EQ(decoded->tokens, record.tokens);
  EXPECT_EQ(decoded->bytes, 999u);
  EXPECT_EQ(decoded->checksum, record.checksum);
  EXPECT_EQ(decoded->last_used_ms, record.last_used_ms);
  EXPECT_TRUE(decoded->pinned);
  EXPECT_TRUE(decoded->returned);
  EXPECT_FALSE(decoded->superseded);
  EXPECT_EQ(decoded->kind, Kind::kCheckpoint);
  EXPECT_EQ(decoded->older, kOldest);
  EXPECT_EQ(decoded->uses, 17u);
  EXPECT_EQ(decoded->extent, record.extent);
  EXPECT_EQ(decoded->root, Id(99));
  EXPECT_EQ(decoded->lineage, state::Lineage::kFast);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string broken = bytes;
    broken[i] = static_cast<char>(broken[i] ^ 0x40);
    EXPECT_FALSE(DecodeRecord(broken)) << "byte " << i;
    EXPECT_FALSE(DecodeRecord(bytes.substr(0, i))) << "length " << i;
  }
}

TEST(BlockIndex, EvictsOldLeavesFirstAndKeepsSharedPrefixes) {
  BlockIndex index;
  index.Insert(Id(1), Record({}, 100));     // shared prefix, oldest of all
  index.Insert(Id(2), Record(Id(1), 200));  // conversation A
  index.Insert(Id(3), Record(Id(1), 300));  // conversation B
  EXPECT_EQ(index.NextVictim(1000), Id(2));
  index.Touch(Id(2), 400);
  EXPECT_EQ(index.NextVictim(1000), Id(3));
  index.Erase(Id(3));
  index.Erase(Id(2));
  EXPECT_EQ(index.NextVictim(1000), Id(1)) << "a leaf again";
  EXPECT_EQ(index.bytes(), 10u);
}

TEST(BlockIndex, PinnedBlocksStay) {
  BlockIndex index;
  index.Insert(Id(1), Record({}, 100));
  index.Insert(Id(2), Record(Id(1), 200));
  index.SetPinned(Id(2), true);
  EXPECT_EQ(index.NextVictim(1000), std::nullopt);
  index.SetPinned(Id(2), false);
  EXPECT_EQ(index.NextVictim(1000), Id(2));
}

BlockRecord Checkpoint(Kind kind, const BlockId& parent, uint32_t first,
                       std::vector<uint32_t> tokens, uint64_t used = 100) {
  BlockRecord record = Record(parent, used, std::move(tokens));
  record.first_token = first;
  record.kind = kind;
  return record;
}

TEST(BlockIndex, TailsInsideAreFoundWithWhatHoldsTheirRows) {
  BlockIndex index;
  index.Insert(Id(1), Record({}, 100));
  index.Insert(Id(2), Checkpoint(Kind::kTail, Id(1), 2, {3}));
  index.Insert(Id(3), Checkpoint(Kind::kTail, Id(1), 2, {9}));
  EXPECT_EQ(index.checkpoints(), 2u);
  EXPECT_TRUE(index.IsFork(Id(1)));
  index.Insert(Id(4), Record(Id(1), 200, {3, 4}));
  EXPECT_EQ(index.TailsInside(Id(4)), std::vector<BlockId>{Id(2)});
  EXPECT_EQ(index.Cover(Id(1), std::vector<uint32_t>{3}, state::Lineage::kExact, Id(2)), Id(4));
  EXPECT_EQ(index.Cover(Id(1), std::vector<uint32_t>{9}, state::Lineage::kExact, Id(3)),
            std::nullopt);
  EXPECT_EQ(index.Find(Id(2)), std::nullopt) << "is not moved";
  std::vector<BlockId> ends = index.Ends();
  std::sort(ends.begin(), ends.end());
  std::vector<BlockId> expected{Id(3), Id(4)};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(ends, expected);
  index.Erase(Id(2));
  EXPECT_EQ(index.checkpoints(), 1u);
  index.Erase(Id(3));
  EXPECT_FALSE(index.IsFork(Id(1)));
}

// The older a checkpoint of a conversation, the sooner it goes, unless several prompts came back to
// it; then go the rows that led to nothing but it.
TEST(BlockIndex, OlderCheckpointsGoFirst) {
  BlockIndex index;
  constexpr Kind kWhole = Kind::kCheckpoint;
  uint64_t now = 1'700'000'000'000;
  for (uint32_t n = 1; n <= 4; ++n) {  // blocks of two tokens and a checkpoint at the end of each
    index.Insert(Id(n), Record(n == 1 ? BlockId{} : Id(n - 1), now, {2 * n - 2, 2 * n - 1}));
    index.Insert(Id(10 + n), Checkpoint(kWhole, Id(n), 2 * n, {}, now));
    index.NoteCheckpoint(Id(10 + n));
  }
  index.CountUse(Id(11), now);
  EXPECT_EQ(index.Get(Id(12))->older, 2u);
  EXPECT_EQ(index.Get(Id(14))->older, 0u);
  EXPECT_EQ(index.Get(Id(11))->older, 0u) << "the system prompt's";
  EXPECT_EQ(index.Ends(), std::vector<BlockId>{Id(4)});
  EXPECT_EQ(index.LastUsedEnd(Id(1)), Id(4));
  std::vector<BlockId> order;
  while (const auto victim = index.NextVictim(now)) {
    order.push_back(*victim);
    index.Erase(*victim);
  }
  const std::vector<BlockId> expected{Id(12), Id(13), Id(14), Id(4), Id(3), Id(2), Id(11), Id(1)};
  EXPECT_EQ(order, expected);
  EXPECT_EQ(index.checkpoints(), 0u);
}

TEST(BlockIndex, FindsWhereTokensDiffer) {
  BlockIndex index;
  index.Insert(Id(1), Record({}, 1, {1, 2, 3, 4}));
  index.Insert(Id(2), Record({}, 1, {1, 2, 9, 9}));
  index.Insert(Id(3), Record(Id(1), 1, {5, 6}));
  const uint32_t a[] = {1, 2, 9, 8, 7};
  EXPECT_EQ(index.LongestStart({}, a, state::Lineage::kExact).tokens, 3u);
  const uint32_t b[] = {5};
  EXPECT_EQ(index.LongestStart(Id(1), b, state::Lineage::kExact).tokens, 1u);
  EXPECT_EQ(index.LongestStart(Id(2), b, state::Lineage::kExact).tokens, 0u);
}

TEST(BlockIndex, FindsTheConversationUsedLast) {
  BlockIndex index;
  index.Insert(Id(1), Record({}, 5, {1, 2}));
  index.Insert(Id(2), Record(Id(1), 3, {3, 4}));
  index.Insert(Id(3), Record(Id(1), 4, {3, 5}));
  index.Insert(Id(4), Record(Id(3), 4, {6, 7}));
  const uint32_t rest[] = {3, 9};
  EXPECT_EQ(index.LongestStart(Id(1), rest, state::Lineage::kExact).child, Id(3));
  index.Touch(Id(2), 9);
  EXPECT_EQ(index.LongestStart(Id(1), rest, state::Lineage::kExact).child, Id(2));
  EXPECT_EQ(index.LastUsedEnd(Id(1)), Id(2));
  index.Touch(Id(3), 10);
  EXPECT_EQ(index.LastUsedEnd(Id(1)), Id(4));
  EXPECT_EQ(index.Ends().size(), 2u);
}

// Children may be loaded before their parents; random inserts and erases must keep bytes, leaves
// and order consistent with a simple model.
TEST(BlockIndex, AgreesWithASimpleModel) {
  std::mt19937 random(11);
  BlockIndex index;
  struct Simple {
    uint32_t parent;
    uint64_t used;
    bool pinned;
  };
  std::map<uint32_t, Simple> model;
  for (int step = 0; step < 5000; ++step) {
    const uint32_t n = 1 + random() % 60;
    switch (random() % 4) {
      case 0:
      case 1:
        if (!model.contains(n)) {
          const uint32_t parent = n / 3;  // a fixed tree; 0 is the root
          model[n] = {parent, static_cast<uint64_t>(1000 + step), false};
          index.Insert(Id(n), Record(parent == 0 ? BlockId{} : Id(parent), 1000u + step));
        }
        break;
      case 2:
        model.erase(n);
        index.Erase(Id(n));
        break;
      default:
        if (model.contains(n)) {
          model[n].pinned = !model[n].pinned;
          index.SetPinned(Id(n), model[n].pinned);
        }
    }
    uint32_t victim = 0;
    for (const auto& [id, simple] : model) {
      const bool leaf = std::none_of(model.begin(), model.end(),
                                     [&](const auto& other) { return other.second.parent == id; });
      if (leaf && !simple.pinned && (victim == 0 || simple.used < model[victim].used)) victim = id;
    }
    const auto expected = victim == 0 ? std::nullopt : std::optional(Id(victim));
    ASSERT_EQ(index.NextVictim(10000), expected) << "step " << step;
    ASSERT_EQ(index.size(), model.size());
    ASSERT_EQ(index.bytes(), 10 * model.size());
  }
}

}  // namespace
}  // namespace strata::kvstore
