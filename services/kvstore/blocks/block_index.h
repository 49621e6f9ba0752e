// All blocks in memory: a forest in which a block's children continue its tokens. Checkpoints are
// leaves of it.
//
// Eviction takes leaves only, the least valuable first (see retention.h): so what remains of a
// conversation is always a prefix, and a prefix shared by several is kept as long as any of them.
// Pinned blocks and their ancestors stay, and so do for a minute those that an incoming prompt was
// promised.
//
// A checkpoint is "inside" a conversation if it is at a block's end or a sibling begins with its
// tokens: text that goes on from the block passes it. A tail inside is of no use, whoever wants its
// rows can cut them from the sibling's. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "common/state/block_id.h"
#include "services/kvstore/align/corpus.h"
#include "services/kvstore/blocks/block_record.h"
#include "services/kvstore/blocks/retention.h"

#include "absl/container/flat_hash_map.h"

namespace strata::kvstore {

class BlockIndex final : public Corpus {
 public:
  size_t size() const { return nodes_.size(); }
  size_t checkpoints() const { return checkpoints_; }
  uint64_t bytes() const { return bytes_; }

  // Nullptr if unknown. The pointer is valid until the next change.
  const BlockRecord* Get(const BlockId& id) const;

  void Insert(const BlockId& id, BlockRecord record);
  // Of a checkpoint that is valid at its end only: what led to nothing but it is superseded.
  void Erase(const BlockId& id);

  // Its data lies elsewhere now.
  void Move(const BlockId& id, const Extent& extent);
  void Touch(const BlockId& id, uint64_t now_ms);
  // A plan contains it.
  void CountUse(const BlockId& id, uint64_t now_ms);
  // A plan ends with it: it is not evicted in the next minute if there is anything else.
  void Protect(const BlockId& id, uint64_t now_ms);
  void SetPinned(const BlockId& id, bool pinned);
  const std::set<BlockId>& pinned() const { return pinned_; }
  // To be called when a turn's new block was inserted: it takes over what is known of its
  // conversation, and a short end that it replaces is superseded: these blocks are returned.
  std::vector<BlockId> NoteTurn(const BlockId& id);
  // The same for a checkpoint that is valid at its end only: those before it in its conversation
  // grow older (see retention.h), and are returned.
  std::vector<BlockId> NoteCheckpoint(const BlockId& id);

  // The tails that are inside a conversation because of `id`.
  std::vector<BlockId> TailsInside(const BlockId& id) const;
  // A child of `parent`, no less exact than `lineage` and other than `self`, with rows of these
  // tokens and perhaps more.
  std::optional<BlockId> Cover(const BlockId& parent, std::span<const uint32_t> tokens,
                               state::Lineage lineage, const BlockId& self = {}) const;
  // The checkpoints that go with a block: those behind it, and those beside it that are inside
  // because of it alone.
  std::vector<BlockId> CheckpointsOf(const BlockId& id) const;

  // The leaf to drop next, other than `keep`; empty if everything left is pinned.
  std::optional<BlockId> NextVictim(uint64_t now_ms, const BlockId& keep = {}) const;

  // The child of `parent` that begins most like `rest`, of children no less exact than `least`; of
  // several the most exact one, then the longest, then the one used last. None if no child shares a
  // token.
  struct Start {
    size_t tokens = 0;
    std::optional<BlockId> child;
  };
  Start LongestStart(const BlockId& parent, std::span<const uint32_t> rest,
                     state::Lineage least) const;
  // The longest checkpoint behind the block `parent`, no less exact than `least`, whose tokens are
  // all in `rest`, which has at least one more. Only of those that are valid at their end only.
  std::optional<BlockId> LongestCheckpoint(const BlockId& parent, std::span<const uint32_t> rest,
                                           state::Lineage least) const;

  // Where the conversations that go on behind this block were used last: the end of that one.
  BlockId LastUsedEnd(BlockId id) const;
  // Blocks that nothing continues: every conversation's last. Of checkpoints those that are not
  // inside.
  std::vector<BlockId> Ends() const;
  // More than one conversation goes on behind it.
  bool IsFork(const BlockId& id) const;
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
  bool IsInside(const BlockId& id, const BlockRecord& record) const;
  bool Evictable(const Node& node) const { return node.children.empty() && !node.record.pinned; }
  static RetentionKind KindOf(const BlockRecord& record);
  // Around every change of a node that may be in the order: out of it, and in again.
  void TakeOut(const BlockId& id, const Node& node);
  void PutIn(const BlockId& id, const Node& node);
  // The blocks of the chain from `id` on, if it is one without forks, pins and uses, of at most
  // `tokens`; empty otherwise.
  std::vector<BlockId> ShortEnd(BlockId id, size_t tokens) const;

  absl::flat_hash_map<BlockId, Node> nodes_;
  // Children whose parent is not a block: the first blocks of all sequences, by their root.
  absl::flat_hash_map<BlockId, std::vector<BlockId>> roots_;
  // Evictable ones by last use, for each kind.
  std::map<RetentionKind, std::set<std::pair<uint64_t, BlockId>>> order_;
  absl::flat_hash_map<BlockId, uint64_t> protected_until_;
  std::set<BlockId> pinned_;
  uint64_t bytes_ = 0;
  size_t checkpoints_ = 0;
};

}  // namespace strata::kvstore
