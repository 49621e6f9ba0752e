// Random sequences of everything that can happen to a store, against a model of a few lines.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "common/base/log.h"
#include "services/kvstore/blocks/store_fixture.h"

namespace strata::kvstore {
namespace {

class BlockStorePropertyTest : public StoreFixture, public testing::WithParamInterface<int> {
 protected:
  struct Block {
    BlockId parent;
    uint32_t first = 0;
    std::vector<uint32_t> tokens;
    size_t bytes = 0;
  };

  // The blocks of a sequence that the model has, from its beginning on.
  size_t Known(const std::vector<uint32_t>& tokens) const {
    BlockId id = root_;
    size_t known = 0;
    for (size_t at = 0; at + kBlock <= tokens.size(); at += kBlock, ++known) {
      id = state::ChildId(id, std::span(tokens).subspan(at, kBlock));
      if (!model_.contains(id)) break;
    }
    return known;
  }
  // A conversation that shares a beginning with one of a few others.
  std::vector<uint32_t> RandomText() {
    std::vector<uint32_t> tokens = Tokens(40, 1000 * (random_() % 4));
    const size_t from = random_() % 10 * kBlock;
    for (size_t i = from; i < tokens.size(); ++i) tokens[i] += 100'000 * (random_() % 3 == 0);
    tokens.resize(random_() % 41);
    return tokens;
  }

  std::mt19937 random_;
  std::map<BlockId, Block> model_;
};

TEST_P(BlockStorePropertyTest, AgreesWithASimpleModel) {
  SetLogLevel(LogLevel::kError);
  random_.seed(static_cast<uint32_t>(GetParam()));
  BlockStore::Options options;
  // The model evicts nothing: with room for all both must agree exactly; otherwise the store may
  // know less, but never anything else.
  const bool roomy = GetParam() % 2 == 0;
  options.budget_bytes = roomy ? 1 << 30 : 700'000;
  options.segment_bytes = 150'000;
  options.punch_holes = GetParam() % 3 != 0;
  ASSERT_TRUE(TryOpen(options).ok());
  std::set<BlockId> pinned;
  for (int step = 0; step < 400; ++step) {
    const std::vector<uint32_t> tokens = RandomText();
    switch (random_() % 10) {
      case 0:
      case 1:
      case 2:
      case 3: {  // save
        BlockId parent = root_;
        for (uint32_t at = 0; at + kBlock <= tokens.size(); at += kBlock) {
          const auto own = std::span(tokens).subspan(at, kBlock);
          const BlockId id = state::ChildId(parent, own);
          const size_t bytes = 1 + id.bytes[0] * 100;
          const auto saved = store_->Save(root_, parent, at, own, Data(id, bytes));
          if (!saved.ok()) {
            ASSERT_FALSE(roomy) << saved.status();
            break;
          }
          if (roomy) {
            ASSERT_EQ(*saved, !model_.contains(id));
          }
          model_[id] = {parent, at, {own.begin(), own.end()}, bytes};
          parent = id;
        }
        break;
      }
      case 4: {  // cut: the conversation's end is deleted
        const auto plan = Plan(tokens);
        if (plan.blocks.empty()) break;
        const size_t keep = random_() % plan.blocks.size();
        std::vector<BlockId> ids;
        for (size_t i = keep; i < plan.blocks.size(); ++i) ids.push_back(plan.blocks[i].id);
        ASSERT_EQ(store_->Delete(ids), ids.size());
        for (const BlockId& id : ids) model_.erase(id);
        break;
      }
      case 5:  // restart
        ASSERT_TRUE(TryOpen(options).ok());
        break;
      case 6:
        store_->CollectGarbage();
        break;
      case 7:
        ASSERT_TRUE(store_->Commit().ok());
        break;
      default: {  // restore
        const StatePlan plan = Plan(tokens);
        if (roomy) {
          ASSERT_EQ(plan.blocks.size(), Known(tokens)) << "step " << step;
        }
        ASSERT_LE(plan.blocks.size(), Known(tokens)) << "step " << step;
        for (const PlannedBlock& block : plan.blocks) {
          const auto data = store_->Read(block.id);
          ASSERT_TRUE(data.ok()) << data.status();
          ASSERT_EQ(data->view(), Data(block.id, model_.at(block.id).bytes));
        }
      }
    }
    ASSERT_LE(store_->status().disk_bytes, options.budget_bytes);
    ASSERT_EQ(store_->status().damaged_blocks, 0u);
  }
  if (roomy) {
    EXPECT_EQ(store_->status().blocks, model_.size());
  }
  SetLogLevel(LogLevel::kInfo);
}

INSTANTIATE_TEST_SUITE_P(Seeds, BlockStorePropertyTest, testing::Range(0, 12));

}  // namespace
}  // namespace strata::kvstore
