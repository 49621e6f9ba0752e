// Random sequences of everything that can happen to a store, against a model of a few lines: in a
// layout of rows alone, and in one that has ring, recurrent and partial components as well.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "common/base/log.h"
#include "services/kvstore/blocks/store_fixture.h"

namespace strata::kvstore {
namespace {

class BlockStorePropertyTest : public StoreFixture, public testing::WithParamInterface<int> {
 protected:
  using Text = std::vector<uint32_t>;

  // Data follow from the name.
  static size_t BytesOf(const BlockId& id) { return 1 + id.bytes[0] * 100; }
  static Text Prefix(const Text& tokens, size_t count) {
    return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count)};
  }
  static bool BeginsWith(const Text& tokens, const Text& start) {
    return tokens.size() >= start.size() && std::equal(start.begin(), start.end(), tokens.begin());
  }
  BlockId Name(const Text& tokens, bool checkpoint) const {
    BlockId id = root_;
    size_t at = 0;
    for (; at + kBlock <= tokens.size(); at += kBlock) {
      id = state::ChildId(id, std::span(tokens).subspan(at, kBlock));
    }
    if (!checkpoint) return id;
    return state::CheckpointId(id, state::Lineage::kExact, std::span(tokens).subspan(at));
  }
  // The blocks of a sequence that the model has, from its beginning on.
  size_t Known(const Text& tokens) const {
    size_t known = 0;
    while ((known + 1) * kBlock <= tokens.size() &&
           blocks_.contains(Prefix(tokens, (known + 1) * kBlock))) {
      ++known;
    }
    return known;
  }
  // Tokens of a sequence whose state the model has.
  size_t Reuse(const Text& tokens) const {
    const size_t end = Known(tokens) * kBlock;
    if (whole_) {
      for (size_t p = std::min(end + kBlock, tokens.size()); p-- > 0;) {
        if (checkpoints_.contains(Prefix(tokens, p))) return p;
      }
      return 0;
    }
    size_t most = end;
    for (const std::set<Text>* texts : {&blocks_, &checkpoints_}) {
      for (const Text& text : *texts) {
        const auto same = static_cast<size_t>(
            std::mismatch(text.begin(), text.end(), tokens.begin(), tokens.end()).first -
            text.begin());
        if (same > most && (text.size() - 1) / kBlock * kBlock == end) most = same;
      }
    }
    return most;
  }
  // With the checkpoints behind it, and those before its end that no other block passes.
  size_t Forget(const Text& block) {
    blocks_.erase(block);
    return 1 + std::erase_if(checkpoints_, [&](const Text& text) {
             if (text.size() / kBlock * kBlock == block.size()) return BeginsWith(text, block);
             return text.size() / kBlock * kBlock + kBlock == block.size() &&
                    text.size() % kBlock != 0 && BeginsWith(block, text) &&
                    std::none_of(blocks_.begin(), blocks_.end(), [&](const Text& other) {
                      return other.size() == block.size() && BeginsWith(other, text);
                    });
           });
  }
  absl::StatusOr<bool> Save(const Text& text, bool checkpoint) {
    const size_t first = checkpoint ? text.size() / kBlock * kBlock : text.size() - kBlock;
    const BlockId id = Name(text, checkpoint);
    const Kind kind = !checkpoint ? Kind::kBlock : whole_ ? Kind::kCheckpoint : Kind::kTail;
    return store_->Save(root_, Name(Prefix(text, first), false), static_cast<uint32_t>(first),
                        std::span(text).subspan(first), Data(id, BytesOf(id)),
                        state::Lineage::kExact, kind);
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
  bool whole_ = false;                   // the layout's state cannot be cut
  std::set<Text> blocks_, checkpoints_;  // by all text up to their end
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
  whole_ = GetParam() % 4 >= 2;
  ASSERT_TRUE(TryOpen(options).ok());
  for (int step = 0; step < 400; ++step) {
    const std::vector<uint32_t> tokens = RandomText();
    switch (random_() % 10) {
      case 0:
      case 1:
      case 2:
      case 3: {  // save
        for (size_t end = kBlock; end <= tokens.size() + kBlock; end += kBlock) {
          // Its last one is a checkpoint; in a layout that needs them there are some on the way.
          const bool last = end > tokens.size();
          if (last && (tokens.empty() || (!whole_ && tokens.size() % kBlock == 0))) break;
          const Text text = Prefix(tokens, std::min(end, tokens.size()));
          const bool known = (last ? checkpoints_ : blocks_).contains(text);
          const bool covered = last && !whole_ && Reuse(text) == text.size();
          const auto saved = Save(text, last);
          if (!saved.ok()) {
            ASSERT_FALSE(roomy) << saved.status();
            break;
          }
          if (roomy) {
            ASSERT_EQ(*saved, !known && !covered);
          }
          (last ? checkpoints_ : blocks_).insert(text);
          if (whole_ && !last && random_() % 3 == 0 && Save(text, true).ok()) {
            checkpoints_.insert(text);
          }
        }
        break;
      }
      case 4: {  // cut: the conversation's end is deleted
        const auto plan = Plan(tokens);
        if (plan.blocks.empty()) break;
        const size_t keep = random_() % plan.blocks.size();
        std::vector<BlockId> ids;
        for (size_t i = keep; i < plan.blocks.size(); ++i) ids.push_back(plan.blocks[i].id);
        // In any order: what is behind them cannot be reached.
        std::reverse(ids.begin(), ids.end());
        const uint64_t deleted = store_->Delete(ids);
        size_t expected = 0;
        for (size_t i = plan.blocks.size(); i > keep; --i) {
          expected += Forget(Prefix(tokens, i * kBlock));
        }
        if (roomy && whole_) {
          ASSERT_EQ(deleted, expected);
        }
        ASSERT_GE(deleted, ids.size());
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
        const StatePlan plan = Plan(tokens, whole_ ? 0 : 1);
        if (roomy) {
          ASSERT_EQ(plan.reused_tokens, Reuse(tokens)) << "step " << step;
        }
        ASSERT_LE(plan.reused_tokens, Reuse(tokens)) << "step " << step;
        std::vector<PlannedBlock> all = plan.blocks;
        if (plan.tail) all.push_back(*plan.tail);
        ASSERT_TRUE(!whole_ || plan.reused_tokens == 0 || plan.tail->checkpoint);
        for (size_t i = 0; i < all.size(); ++i) {
          ASSERT_EQ(all[i].first_token, i * kBlock);
          const auto data = store_->Read(all[i].id);
          ASSERT_TRUE(data.ok()) << data.status();
          ASSERT_EQ(data->view(), Data(all[i].id, BytesOf(all[i].id)));
        }
      }
    }
    ASSERT_LE(store_->status().disk_bytes, options.budget_bytes);
    ASSERT_EQ(store_->status().damaged_blocks, 0u);
  }
  if (roomy) {
    EXPECT_EQ(store_->status().blocks - store_->status().checkpoints, blocks_.size());
  }
  if (roomy && whole_) {
    EXPECT_EQ(store_->status().checkpoints, checkpoints_.size());
  }
  SetLogLevel(LogLevel::kInfo);
}

INSTANTIATE_TEST_SUITE_P(Seeds, BlockStorePropertyTest, testing::Range(0, 12));

}  // namespace
}  // namespace strata::kvstore
