// For tests: a store in a folder of its own, and conversations whose bytes follow from their ids.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/test_folder.h"
#include "services/kvstore/blocks/block_store.h"

namespace strata::kvstore {

class StoreFixture : public testing::Test {
 protected:
  static constexpr uint32_t kBlock = 4;  // tokens

  absl::Status TryOpen(BlockStore::Options options) {
    store_.reset();
    if (options.path.empty()) options.path = path_;
    auto store = BlockStore::Open(options);
    if (store.ok()) store_ = *std::move(store);
    return store.status();
  }
  void Open(uint64_t budget = 1 << 30) {
    BlockStore::Options options;
    options.budget_bytes = budget;
    const absl::Status opened = TryOpen(options);
    ASSERT_TRUE(opened.ok()) << opened;
  }
  static std::vector<uint32_t> Tokens(size_t n, uint32_t first = 0) {
    std::vector<uint32_t> tokens(n);
    for (size_t i = 0; i < n; ++i) tokens[i] = first + static_cast<uint32_t>(i);
    return tokens;
  }
  static std::string Data(const BlockId& id, size_t bytes = 20'000) {
    std::string data;
    while (data.size() < bytes) data += id.ToString();
    data.resize(bytes);
    return data;
  }
  // Saves all whole blocks of a sequence and a checkpoint of what is behind them, if there is
  // anything; stops at the first that is refused.
  static absl::Status SaveAll(BlockStore& store, const BlockId& root,
                              const std::vector<uint32_t>& tokens, size_t bytes = 20'000,
                              Kind checkpoint = Kind::kTail) {
    BlockId parent = root;
    size_t at = 0;
    for (; at + kBlock <= tokens.size(); at += kBlock) {
      const auto own = std::span(tokens).subspan(at, kBlock);
      const BlockId id = state::ChildId(parent, own);
      const auto saved = store.Save(root, parent, static_cast<uint32_t>(at), own, Data(id, bytes));
      if (!saved.ok()) return saved.status();
      parent = id;
    }
    if (at == tokens.size()) return absl::OkStatus();
    const auto rest = std::span(tokens).subspan(at);
    return store
        .Save(root, parent, static_cast<uint32_t>(at), rest,
              Data(state::CheckpointId(parent, state::Lineage::kExact, rest), bytes),
              state::Lineage::kExact, checkpoint)
        .status();
  }
  void SaveAll(const std::vector<uint32_t>& tokens, size_t bytes = 20'000) {
    const absl::Status saved = SaveAll(*store_, root_, tokens, bytes);
    ASSERT_TRUE(saved.ok()) << saved;
  }
  StatePlan Plan(const std::vector<uint32_t>& tokens, uint32_t cut = 1) {
    PlanQuery query{root_, tokens, kBlock};
    query.cut = cut;
    return store_->Plan(query);
  }

  const TestFolder folder_;
  const std::string path_ = folder_.path();
  BlockId root_ = state::RootId("model", "layout", "");
  std::unique_ptr<BlockStore> store_;
};

}  // namespace strata::kvstore
