#include "services/kvstore/blocks/block_store.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "services/kvstore/blocks/store_fixture.h"

namespace strata::kvstore {
namespace {

class BlockStoreTest : public StoreFixture {};

TEST_F(BlockStoreTest, PlansTheLongestCommonPrefix) {
  Open();
  SaveAll(Tokens(16));
  std::vector<uint32_t> prompt = Tokens(30);
  StatePlan plan = Plan(prompt);
  EXPECT_EQ(plan.reused_tokens, 16u);
  ASSERT_EQ(plan.blocks.size(), 4u);
  EXPECT_EQ(plan.blocks[2].first_token, 8u);
  EXPECT_EQ(store_->Read(plan.blocks[2].id)->view(), Data(plan.blocks[2].id));

  EXPECT_FALSE(plan.tail);

  prompt[10] = 777;  // the third block differs in its third token
  plan = Plan(prompt);
  EXPECT_EQ(plan.blocks.size(), 2u);
  EXPECT_EQ(plan.reused_tokens, 10u) << "rows can be cut";
  ASSERT_TRUE(plan.tail);
  EXPECT_EQ(plan.tail->first_token, 8u);
  EXPECT_EQ(plan.tail->tokens, kBlock);
  EXPECT_EQ(Plan(prompt, /*cut=*/4).reused_tokens, 8u) << "not where rows hold four tokens each";
  EXPECT_EQ(plan.first_different_token, 10u);
  EXPECT_EQ(Plan(Tokens(30, 1000)).reused_tokens, 0u);
}

TEST_F(BlockStoreTest, OtherModelsAndTenantsShareNothing) {
  Open();
  SaveAll(Tokens(16));
  for (const BlockId& other :
       {state::RootId("other", "layout", ""), state::RootId("model", "layout", "alice")}) {
    EXPECT_EQ(store_->Plan({other, Tokens(16), kBlock}).reused_tokens, 0u);
  }
}

TEST_F(BlockStoreTest, SavingTwiceStoresOnce) {
  Open();
  SaveAll(Tokens(8));
  const uint64_t bytes = store_->status().bytes;
  SaveAll(Tokens(8));
  EXPECT_EQ(store_->status().blocks, 2u);
  EXPECT_EQ(store_->status().bytes, bytes);
  EXPECT_EQ(store_->status().saved_blocks, 2u);
}

TEST_F(BlockStoreTest, ABlockWithoutItsParentIsRefused) {
  Open();
  const auto own = Tokens(kBlock);
  const auto saved = store_->Save(root_, state::RootId("x", "y", "z"), 4, own, "data");
  EXPECT_EQ(saved.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(BlockStoreTest, SurvivesARestart) {
  Open();
  SaveAll(Tokens(16));
  ASSERT_TRUE(store_->PutProfile("experts/m", "learned").ok());
  Open();
  const StatePlan plan = Plan(Tokens(16));
  EXPECT_EQ(plan.reused_tokens, 16u);
  for (const PlannedBlock& block : plan.blocks) {
    EXPECT_EQ(store_->Read(block.id)->view(), Data(block.id));
  }
  EXPECT_EQ(*store_->GetProfile("experts/m"), "learned");
  EXPECT_EQ(store_->GetProfile("none").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(BlockStoreTest, ATailEndsThePrefixAndCanBeCut) {
  Open();
  SaveAll(Tokens(19));
  for (int restarts = 0; restarts < 2; ++restarts) {
    EXPECT_EQ(store_->status().blocks, 5u);
    EXPECT_EQ(store_->status().checkpoints, 1u);
    StatePlan plan = Plan(Tokens(30));
    EXPECT_EQ(plan.blocks.size(), 4u);
    EXPECT_EQ(plan.reused_tokens, 19u);
    EXPECT_EQ(plan.first_different_token, 19u);
    ASSERT_TRUE(plan.tail);
    EXPECT_TRUE(plan.tail->checkpoint);
    EXPECT_EQ(plan.tail->tokens, 3u);
    EXPECT_EQ(plan.conversation, plan.tail->id);
    EXPECT_EQ(store_->Read(plan.tail->id)->view(), Data(plan.tail->id));
    std::vector<uint32_t> other = Tokens(30);
    other[17] = 777;
    EXPECT_EQ(Plan(other).reused_tokens, 17u);
    Open();
  }
  // A text that is shorter than a block.
  SaveAll(Tokens(3, 100));
  EXPECT_EQ(Plan(Tokens(10, 100)).reused_tokens, 3u);
  // Reading a token or two is no more work than fetching a large block.
  constexpr uint32_t kLarge = 64;
  const BlockId root = state::RootId("model", "large", "");
  const auto own = Tokens(kLarge);
  ASSERT_TRUE(store_->Save(root, root, 0, own, "rows").ok());
  EXPECT_EQ(store_->Plan({root, Tokens(8), kLarge}).reused_tokens, 8u);
  EXPECT_EQ(store_->Plan({root, Tokens(7), kLarge}).reused_tokens, 0u);
}

TEST_F(BlockStoreTest, ATailGoesWhenItsRowsAreHeldByALongerOne) {
  Open();
  SaveAll(Tokens(17));
  SaveAll(Tokens(19));
  ASSERT_TRUE(store_->Commit().ok());
  EXPECT_EQ(store_->status().checkpoints, 1u);
  EXPECT_EQ(Plan(Tokens(17)).reused_tokens, 17u);
  SaveAll(Tokens(18));  // its rows are there
  EXPECT_EQ(store_->status().checkpoints, 1u);
  // One in other words stays.
  std::vector<uint32_t> other = Tokens(18);
  other[17] = 777;
  SaveAll(other);
  EXPECT_EQ(store_->status().checkpoints, 2u);
  const BlockId tail = Plan(Tokens(19)).tail->id;
  EXPECT_EQ(store_->Pin(std::span(&tail, 1), true), 1u);
  SaveAll(Tokens(20));
  EXPECT_EQ(store_->status().checkpoints, 2u) << "until it is certain that the block stays";
  for (int restarts = 0; restarts < 2; ++restarts) {
    Open();
    EXPECT_EQ(store_->status().checkpoints, 1u);
    EXPECT_EQ(Plan(Tokens(19)).reused_tokens, 19u) << "of the block";
    EXPECT_EQ(Plan(other).reused_tokens, 18u);
  }
  const BlockId block = Plan(Tokens(20)).blocks.back().id;
  EXPECT_EQ(store_->Pin(std::span(&block, 1), false), 1u) << "it took over the pin";
  EXPECT_EQ(store_->List(std::nullopt, 0).size(), 2u);
}

TEST_F(BlockStoreTest, TailsKeepTheirLineage) {
  Open();
  SaveAll(Tokens(4));
  const BlockId first = Plan(Tokens(4)).blocks[0].id;
  const std::vector<uint32_t> prompt = Tokens(12);
  const auto own = std::span(prompt).subspan(4, 2);
  ASSERT_TRUE(*store_->Save(root_, first, 4, own, "spliced", state::Lineage::kFast, Kind::kTail));
  PlanQuery query{root_, prompt, kBlock};
  EXPECT_EQ(store_->Plan(query).reused_tokens, 4u);
  query.accept = state::Lineage::kSafe;
  EXPECT_EQ(store_->Plan(query).reused_tokens, 4u);
  query.accept = state::Lineage::kFast;
  StatePlan plan = store_->Plan(query);
  EXPECT_EQ(plan.reused_tokens, 6u);
  EXPECT_EQ(plan.tail->lineage, state::Lineage::kFast);
  // An exact tail of the same tokens is preferred, and nothing spliced replaces it.
  SaveAll(Tokens(6));
  EXPECT_EQ(store_->Plan(query).tail->lineage, state::Lineage::kExact);
  const auto more = std::span(prompt).subspan(4, 3);
  ASSERT_TRUE(*store_->Save(root_, first, 4, more, "spliced", state::Lineage::kSafe, Kind::kTail));
  ASSERT_TRUE(store_->Commit().ok());
  EXPECT_EQ(store_->status().checkpoints, 2u) << "the exact one and the safe one";
  query.accept = state::Lineage::kExact;
  EXPECT_EQ(store_->Plan(query).reused_tokens, 6u);
  query.accept = state::Lineage::kSafe;
  EXPECT_EQ(store_->Plan(query).reused_tokens, 7u);
}

// A layout with rows, a ring, recurrent and partial components.
TEST_F(BlockStoreTest, StateThatCannotBeCutIsUsedAtCheckpointsOnly) {
  Open();
  const std::vector<uint32_t> text = Tokens(30);
  SaveAll(Tokens(20));
  EXPECT_EQ(Plan(text, 0).reused_tokens, 0u) << "rows alone are of no use";
  EXPECT_TRUE(Plan(text, 0).blocks.empty());
  const auto checkpoint = [&](uint32_t p) {
    const uint32_t border = p / kBlock * kBlock;
    BlockId parent = root_;
    for (uint32_t at = 0; at < border; at += kBlock) {
      parent = state::ChildId(parent, std::span(text).subspan(at, kBlock));
    }
    const auto own = std::span(text).subspan(border, p - border);
    return store_->Save(root_, parent, border, own,
                        Data(state::CheckpointId(parent, state::Lineage::kExact, own)),
                        state::Lineage::kExact, Kind::kCheckpoint);
  };
  for (const uint32_t p : {3, 8, 14, 15}) ASSERT_TRUE(*checkpoint(p));
  EXPECT_FALSE(*checkpoint(14));
  EXPECT_FALSE(checkpoint(0).ok());
  for (int restarts = 0; restarts < 2; ++restarts) {
    EXPECT_EQ(store_->status().checkpoints, 4u) << "none replaces another";
    StatePlan plan = Plan(text, 0);
    EXPECT_EQ(plan.reused_tokens, 15u);
    EXPECT_EQ(plan.blocks.size(), 3u) << "those behind it are no part of the plan";
    EXPECT_EQ(plan.first_different_token, 20u);
    EXPECT_EQ(store_->Read(plan.tail->id)->view(), Data(plan.tail->id));
    EXPECT_EQ(Plan(Tokens(15), 0).reused_tokens, 14u) << "the last token has to be computed";
    EXPECT_EQ(Plan(Tokens(14), 0).reused_tokens, 8u);
    EXPECT_EQ(Plan(Tokens(14), 0).tail->tokens, 0u);
    EXPECT_EQ(Plan(Tokens(8), 0).reused_tokens, 3u);
    EXPECT_EQ(Plan(Tokens(3), 0).reused_tokens, 0u);
    std::vector<uint32_t> other = text;
    other[9] = 777;
    EXPECT_EQ(Plan(other, 0).reused_tokens, 8u);
    EXPECT_EQ(Plan(other, 0).first_different_token, 9u);
    other[2] = 777;
    EXPECT_EQ(Plan(other, 0).reused_tokens, 0u);
    const auto list = store_->List(std::nullopt, 0);
    ASSERT_EQ(list.size(), 1u) << "checkpoints on the way are no conversations";
    EXPECT_EQ(list[0].own_blocks, 5u);
    Open();
  }
  // They go with the text that they are of.
  std::vector<BlockId> ids;
  for (const PlannedBlock& block : Plan(Tokens(20)).blocks) ids.push_back(block.id);
  EXPECT_EQ(store_->Delete(std::span(ids).subspan(2)), 5u) << "three blocks, and 14 and 15";
  EXPECT_EQ(Plan(text, 0).reused_tokens, 8u);
  EXPECT_EQ(store_->Delete(ids), 4u);
  EXPECT_EQ(store_->status().blocks, 0u);
}

TEST_F(BlockStoreTest, NothingFollowsACheckpoint) {
  Open();
  SaveAll(Tokens(6));
  const BlockId tail = Plan(Tokens(6)).tail->id;
  for (const Kind kind : {Kind::kBlock, Kind::kTail, Kind::kCheckpoint}) {
    const auto own = Tokens(2, 6);
    EXPECT_EQ(store_->Save(root_, tail, 6, own, "x", state::Lineage::kExact, kind).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(
      store_->Save(root_, root_, 0, {}, "x", state::Lineage::kExact, Kind::kTail).status().code(),
      absl::StatusCode::kInvalidArgument);
}

// State that a splice has touched serves only who accepts as much, and is never moved again.
TEST_F(BlockStoreTest, LineagesServeWhoAcceptsThem) {
  Open();
  SaveAll(Tokens(8));
  const std::vector<uint32_t> prompt = Tokens(16);
  const BlockId first = state::ChildId(root_, std::span(prompt).first(kBlock));
  // Behind the first exact block a chain of three spliced ones.
  BlockId parent = first;
  state::Lineage lineage = state::Lineage::kExact;
  for (uint32_t at = kBlock; at < 16; at += kBlock) {
    const auto own = std::span(prompt).subspan(at, kBlock);
    const auto marked = at < 12 ? state::Lineage::kSafe : state::Lineage::kFast;
    const BlockId id = state::ChildId(parent, lineage, marked, own);
    ASSERT_TRUE(*store_->Save(root_, parent, at, own, Data(id), marked));
    parent = id;
    lineage = marked;
  }
  // A block behind a spliced one cannot be exact.
  const auto own = Tokens(kBlock, 100);
  EXPECT_EQ(store_->Save(root_, parent, 16, own, "x").status().code(),
            absl::StatusCode::kInvalidArgument);
  for (int restarts = 0; restarts < 2; ++restarts) {
    PlanQuery query{root_, prompt, kBlock};
    EXPECT_EQ(store_->Plan(query).reused_tokens, 8u) << "the exact ones";
    query.accept = state::Lineage::kSafe;
    const StatePlan safe = store_->Plan(query);
    EXPECT_EQ(safe.reused_tokens, 12u);
    ASSERT_EQ(safe.blocks.size(), 3u);
    EXPECT_EQ(safe.blocks[0].id, first);
    EXPECT_EQ(safe.blocks[2].lineage, state::Lineage::kSafe);
    EXPECT_EQ(store_->Read(safe.blocks[2].id)->view(), Data(safe.blocks[2].id));
    query.accept = state::Lineage::kFast;
    EXPECT_EQ(store_->Plan(query).reused_tokens, 16u);
    Open();
  }
}

TEST_F(BlockStoreTest, PlansRunsThatStandElsewhere) {
  Open();
  constexpr uint32_t kLarge = 64;
  const std::vector<uint32_t> stored = Tokens(640, 1000);
  const auto save = [&](const BlockId& root) {
    BlockId parent = root;
    for (uint32_t at = 0; at < stored.size(); at += kLarge) {
      const auto own = std::span(stored).subspan(at, kLarge);
      ASSERT_TRUE(store_->Save(root, parent, at, own, Data(root, 100)).ok());
      parent = state::ChildId(parent, own);
    }
  };
  save(root_);
  std::vector<uint32_t> prompt = Tokens(10);
  prompt.insert(prompt.end(), stored.begin() + 150, stored.end());
  prompt.push_back(1);
  std::vector<uint32_t> lines;
  for (uint32_t at = 10; at < prompt.size(); at += 10) lines.push_back(at);
  PlanQuery query{root_, prompt, kLarge, state::Lineage::kFast, /*move=*/true, lines};
  for (int restarts = 0; restarts < 2; ++restarts) {
    const StatePlan plan = store_->Plan(query);
    EXPECT_EQ(plan.reused_tokens, 0u);
    ASSERT_EQ(plan.runs.size(), 1u);
    EXPECT_EQ(plan.runs[0].first_token, 10u);
    EXPECT_EQ(plan.runs[0].old_first_token, 150u);
    EXPECT_EQ(plan.runs[0].tokens, 490u);
    EXPECT_EQ(plan.moved_tokens, 490u);
    ASSERT_EQ(plan.runs[0].blocks.size(), 8u);
    EXPECT_EQ(plan.runs[0].blocks[0].first_token, 128u);
    Open();  // the index is rebuilt from the blocks
  }
  query.move = false;
  EXPECT_TRUE(store_->Plan(query).runs.empty());
  // Neither another tenant's text nor deleted text is moved.
  query.move = true;
  query.root = state::RootId("model", "layout", "other");
  EXPECT_TRUE(store_->Plan(query).runs.empty());
  query.root = root_;
  store_->DeleteAll();
  EXPECT_TRUE(store_->Plan(query).runs.empty());
}

TEST_F(BlockStoreTest, ABlockMustContinueItsParent) {
  Open();
  const auto own = Tokens(kBlock);
  EXPECT_EQ(store_->Save(root_, root_, 4, own, "data").status().code(),
            absl::StatusCode::kInvalidArgument);
}

// A child process saves until it is killed; whatever it said it had saved must be there and intact.
TEST_F(BlockStoreTest, KillLosesNothingThatWasSaved) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto store = BlockStore::Open({path_, 1 << 30});
    if (!store.ok()) _exit(1);
    BlockId parent = root_;
    for (uint32_t at = 0;; at += kBlock) {
      const auto own = Tokens(kBlock, at);
      const BlockId id = state::ChildId(parent, own);
      if (!(*store)->Save(root_, parent, at, own, Data(id, 300'000)).ok()) _exit(2);
      parent = id;
      if (!(*store)->Commit().ok()) _exit(4);
      if (write(ends[1], &at, sizeof(at)) != sizeof(at)) _exit(3);
    }
  }
  close(ends[1]);
  uint32_t last = 0;
  while (last < 100 * kBlock && read(ends[0], &last, sizeof(last)) == sizeof(last)) {
  }
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself: " << WEXITSTATUS(status);
  while (read(ends[0], &last, sizeof(last)) == sizeof(last)) {
  }
  close(ends[0]);
  Open();
  const StatePlan plan = Plan(Tokens(last + kBlock));
  EXPECT_EQ(plan.reused_tokens, last + kBlock);
  for (const PlannedBlock& block : plan.blocks) {
    ASSERT_EQ(store_->Read(block.id)->view(), Data(block.id, 300'000));
  }
}

TEST_F(BlockStoreTest, BudgetHoldsAndOldConversationsGoFirst) {
  Open(230'000);
  SaveAll(Tokens(16, 0));
  SaveAll(Tokens(16, 100));
  Plan(Tokens(16, 0));  // used again: now the second is the older one
  SaveAll(Tokens(20, 200));
  EXPECT_LE(store_->status().disk_bytes, 230'000u);
  EXPECT_EQ(Plan(Tokens(20, 200)).reused_tokens, 20u);
  EXPECT_EQ(Plan(Tokens(16, 0)).reused_tokens, 16u);
  EXPECT_LT(Plan(Tokens(16, 100)).reused_tokens, 16u);
  EXPECT_GT(store_->status().evicted_blocks, 0u);
}

// The conversation being saved must not push out its own beginning.
TEST_F(BlockStoreTest, AConversationLargerThanTheBudgetKeepsItsStart) {
  Open(100'000);
  BlockId parent = root_;
  absl::Status status;
  for (uint32_t at = 0; status.ok() && at < 100; at += kBlock) {
    const auto own = Tokens(kBlock, at);
    const BlockId id = state::ChildId(parent, own);
    status = store_->Save(root_, parent, at, own, Data(id)).status();
    parent = id;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_LE(store_->status().bytes, 100'000u);
  EXPECT_GE(Plan(Tokens(100)).reused_tokens, 3 * kBlock);
}

TEST_F(BlockStoreTest, PinnedBlocksAreNotEvicted) {
  Open(100'000);
  SaveAll(Tokens(8));
  std::vector<BlockId> ids;
  for (const PlannedBlock& block : Plan(Tokens(8)).blocks) ids.push_back(block.id);
  EXPECT_EQ(store_->Pin(ids, true), 2u);
  for (uint32_t i = 1; i < 10; ++i) SaveAll(Tokens(8, 1000 * i));
  EXPECT_EQ(Plan(Tokens(8)).reused_tokens, 8u);
  Open(100'000);
  EXPECT_EQ(store_->Pin(ids, false), 2u) << "pins survive a restart";
}

TEST_F(BlockStoreTest, DeletedBlocksAreGone) {
  Open();
  SaveAll(Tokens(16));
  EXPECT_EQ(store_->DeleteAll(), 4u);
  EXPECT_EQ(Plan(Tokens(16)).reused_tokens, 0u);
  EXPECT_EQ(store_->status().bytes, 0u);
}

TEST_F(BlockStoreTest, SecondProcessIsRefused) {
  Open();
  const auto second = BlockStore::Open({path_, 1 << 20});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << second.status();
}

TEST_F(BlockStoreTest, ManyThreadsAtOnce) {
  Open(2'000'000);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 30; ++i) {
        const std::vector<uint32_t> tokens = Tokens(16, 1000 * (t % 2) + i);
        BlockId parent = root_;
        for (size_t at = 0; at < tokens.size(); at += kBlock) {
          const auto own = std::span(tokens).subspan(at, kBlock);
          const BlockId id = state::ChildId(parent, own);
          (void)store_->Save(root_, parent, static_cast<uint32_t>(at), own, Data(id));
          parent = id;
        }
        for (const PlannedBlock& block : Plan(tokens).blocks) {
          const auto data = store_->Read(block.id);
          if (data.ok()) {
            EXPECT_EQ(data->view(), Data(block.id));
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(store_->status().bytes, 2'000'000u);
  EXPECT_EQ(store_->status().damaged_blocks, 0u);
}

}  // namespace
}  // namespace strata::kvstore
