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
  SaveAll(Tokens(18));
  std::vector<uint32_t> prompt = Tokens(30);
  StatePlan plan = Plan(prompt);
  EXPECT_EQ(plan.reused_tokens, 16u);
  ASSERT_EQ(plan.blocks.size(), 4u);
  EXPECT_EQ(plan.blocks[2].first_token, 8u);
  EXPECT_EQ(store_->Read(plan.blocks[2].id)->view(), Data(plan.blocks[2].id));

  prompt[10] = 777;  // the third block differs in its third token
  plan = Plan(prompt);
  EXPECT_EQ(plan.reused_tokens, 8u);
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
