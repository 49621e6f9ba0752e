// All blocks in memory: a forest in which a block's children continue its tokens.
//
// Eviction takes leaves only, the least recently used first: so what remains of a conversation is
// always a prefix, and a prefix shared by several is kept as long as any of them. Pinned blocks and
// their ancestors stay. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "common/state/block_id.h"
#include "services/kvstore/align/corpus.h"
#include "services/kvstore/blocks/block_record.h"

#include "absl/container/flat_hash_map.h"

namespace strata::kvstore {

class BlockIndex final : public Corpus {
 public:
  size_t size() const { return nodes_.size(); }
  uint64_t bytes() const { return bytes_; }

  // Nullptr if unknown. The pointer is valid until the next change.
  const BlockRecord* Get(const BlockId& id) const;

  void Insert(const BlockId& id, BlockRecord record);
  void Erase(const BlockId& id);
  void Clear();

  // Its data lies elsewhere now.
  void Move(const BlockId& id, const Extent& extent);
  void Touch(const BlockId& id, uint64_t now_ms);
  void SetPinned(const BlockId& id, bool pinned);

  // The leaf to drop next, other than `keep`; empty if everything left is pinned.
  std::optional<BlockId> NextVictim(const BlockId& keep = {}) const;

  // The child of `parent` that begins most like `rest`, of children no less exact than `least`; the
  // one used last of several. None if no child shares a token.
  struct Start {
    size_t tokens = 0;
    std::optional<BlockId> child;
  };
  Start LongestStart(const BlockId& parent, std::span<const uint32_t> rest,
                     state::Lineage least) const;

  // Where the conversations that go on behind this block were used last: the end of that one.
  BlockId LastUsedEnd(BlockId id) const;
  // Blocks that nothing continues: every conversation's last.
  std::vector<BlockId> Ends() const;
  std::vector<BlockId> All() const;

  // Corpus: of exact blocks. State that a splice has touched is not moved a second time, errors
  // would add up.
  std::optional<CorpusBlock> Find(const BlockId& id) const override;
  std::span<const BlockId> Children(const BlockId& id) const override;

 private:
  struct Node {
    BlockRecord record;
    std::vector<BlockId> children;
  };
  bool Evictable(const Node& node) const { return node.children.empty() && !node.record.pinned; }
  void UpdateOrder(const BlockId& id, const Node& node, bool was_evictable, uint64_t was_used);

  absl::flat_hash_map<BlockId, Node> nodes_;
  // Children whose parent is not a block: the first blocks of all sequences, by their root.
  absl::flat_hash_map<BlockId, std::vector<BlockId>> roots_;
  std::set<std::pair<uint64_t, BlockId>> order_;  // evictable ones by last use
  uint64_t bytes_ = 0;
};

}  // namespace strata::kvstore
