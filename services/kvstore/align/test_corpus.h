// Conversations in memory, cut into blocks like the store does. For tests and benchmarks.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "services/kvstore/align/aligner.h"

#include "absl/container/flat_hash_map.h"

namespace strata::kvstore {

class TestCorpus final : public Corpus {
 public:
  static constexpr size_t kBlock = 64;

  // Whole blocks of the conversation; shared beginnings are stored once.
  void Save(std::span<const uint32_t> tokens) {
    BlockId parent = root_;
    for (size_t at = 0; at + kBlock <= tokens.size(); at += kBlock) {
      const auto own = tokens.subspan(at, kBlock);
      const BlockId id = state::ChildId(parent, own);
      if (!blocks_.contains(id)) {
        blocks_[id] = {parent, static_cast<uint32_t>(at), {own.begin(), own.end()}};
        children_[parent].push_back(id);
        seeds_.Add(id, own);
      }
      parent = id;
    }
  }
  // Removes the last block of a conversation.
  void DropLast(std::span<const uint32_t> tokens) {
    BlockId id = root_;
    for (size_t at = 0; at + kBlock <= tokens.size(); at += kBlock) {
      const BlockId next = state::ChildId(id, tokens.subspan(at, kBlock));
      if (!blocks_.contains(next)) break;
      id = next;
    }
    const auto it = blocks_.find(id);
    if (it == blocks_.end()) return;
    seeds_.Remove(id, it->second.tokens);
    std::erase(children_[it->second.parent], id);
    blocks_.erase(it);
  }

  std::optional<CorpusBlock> Find(const BlockId& id) const override {
    const auto it = blocks_.find(id);
    if (it == blocks_.end()) return std::nullopt;
    return CorpusBlock{it->second.parent, it->second.first, it->second.tokens};
  }
  std::span<const BlockId> Children(const BlockId& id) const override {
    const auto it = children_.find(id);
    if (it == children_.end()) return {};
    return it->second;
  }
  const SeedIndex& seeds() const { return seeds_; }
  size_t size() const { return blocks_.size(); }

 private:
  struct Block {
    BlockId parent;
    uint32_t first = 0;
    std::vector<uint32_t> tokens;
  };
  BlockId root_ = state::RootId("m", "l", "");
  absl::flat_hash_map<BlockId, Block> blocks_;
  absl::flat_hash_map<BlockId, std::vector<BlockId>> children_;
  SeedIndex seeds_;
};

}  // namespace strata::kvstore
