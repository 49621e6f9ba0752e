#include "services/kvstore/blocks/block_index.h"

#include <algorithm>

namespace strata::kvstore {

const BlockRecord* BlockIndex::Get(const BlockId& id) const {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? nullptr : &it->second.record;
}

void BlockIndex::UpdateOrder(const BlockId& id, const Node& node, bool was_evictable,
                             uint64_t was_used) {
  if (was_evictable) order_.erase({was_used, id});
  if (Evictable(node)) order_.insert({node.record.last_used_ms, id});
}

void BlockIndex::Insert(const BlockId& id, BlockRecord record) {
  if (nodes_.contains(id)) return;
  const BlockId parent = record.parent;
  bytes_ += record.footprint();
  Node node{std::move(record), {}};
  // At start blocks come in any order: children may be here before their parent.
  if (const auto waiting = roots_.find(id); waiting != roots_.end()) {
    node.children = std::move(waiting->second);
    roots_.erase(waiting);
  }
  if (Evictable(node)) order_.insert({node.record.last_used_ms, id});
  nodes_.emplace(id, std::move(node));
  const auto it = nodes_.find(parent);
  if (it == nodes_.end()) {
    roots_[parent].push_back(id);
    return;
  }
  const bool was = Evictable(it->second);
  it->second.children.push_back(id);
  UpdateOrder(parent, it->second, was, it->second.record.last_used_ms);
}

void BlockIndex::Erase(const BlockId& id) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  Node node = std::move(it->second);
  if (Evictable(node)) order_.erase({node.record.last_used_ms, id});
  bytes_ -= node.record.footprint();
  nodes_.erase(it);
  if (!node.children.empty()) roots_[id] = std::move(node.children);
  if (const auto parent = nodes_.find(node.record.parent); parent != nodes_.end()) {
    const bool was = Evictable(parent->second);
    std::erase(parent->second.children, id);
    UpdateOrder(parent->first, parent->second, was, parent->second.record.last_used_ms);
  } else if (const auto root = roots_.find(node.record.parent); root != roots_.end()) {
    std::erase(root->second, id);
    if (root->second.empty()) roots_.erase(root);
  }
}

void BlockIndex::Clear() {
  nodes_.clear();
  roots_.clear();
  order_.clear();
  bytes_ = 0;
}

void BlockIndex::Move(const BlockId& id, const Extent& extent) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  BlockRecord& record = it->second.record;
  bytes_ -= record.footprint();
  record.extent = extent;
  bytes_ += record.footprint();
}

void BlockIndex::Touch(const BlockId& id, uint64_t now_ms) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  const uint64_t was_used = std::exchange(it->second.record.last_used_ms, now_ms);
  UpdateOrder(id, it->second, Evictable(it->second), was_used);
}

void BlockIndex::SetPinned(const BlockId& id, bool pinned) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  const bool was = Evictable(it->second);
  it->second.record.pinned = pinned;
  UpdateOrder(id, it->second, was, it->second.record.last_used_ms);
}

std::optional<BlockId> BlockIndex::NextVictim(const BlockId& keep) const {
  for (const auto& [used, id] : order_) {
    if (id != keep) return id;
  }
  return std::nullopt;
}

std::optional<CorpusBlock> BlockIndex::Find(const BlockId& id) const {
  const BlockRecord* record = Get(id);
  if (record == nullptr || record->lineage != state::Lineage::kExact) return std::nullopt;
  return CorpusBlock{record->parent, record->first_token, record->tokens};
}

std::span<const BlockId> BlockIndex::Children(const BlockId& id) const {
  if (const auto node = nodes_.find(id); node != nodes_.end()) return node->second.children;
  if (const auto root = roots_.find(id); root != roots_.end()) return root->second;
  return {};
}

BlockIndex::Start BlockIndex::LongestStart(const BlockId& parent, std::span<const uint32_t> rest,
                                           state::Lineage least) const {
  Start best;
  uint64_t used = 0;
  for (const BlockId& child : Children(parent)) {
    const BlockRecord& record = nodes_.at(child).record;
    if (record.lineage > least) continue;
    const std::vector<uint32_t>& tokens = record.tokens;
    const auto differs = std::mismatch(tokens.begin(), tokens.end(), rest.begin(), rest.end());
    const auto same = static_cast<size_t>(differs.first - tokens.begin());
    if (same == 0 || std::pair(same, record.last_used_ms) <= std::pair(best.tokens, used)) continue;
    best = {same, child};
    used = record.last_used_ms;
  }
  return best;
}

BlockId BlockIndex::LastUsedEnd(BlockId id) const {
  for (;;) {
    std::optional<BlockId> next;
    uint64_t used = 0;
    for (const BlockId& child : Children(id)) {
      const uint64_t at = nodes_.at(child).record.last_used_ms;
      if (next && at <= used) continue;
      next = child;
      used = at;
    }
    if (!next) return id;
    id = *next;
  }
}

std::vector<BlockId> BlockIndex::Ends() const {
  std::vector<BlockId> ids;
  for (const auto& [id, node] : nodes_) {
    if (node.children.empty()) ids.push_back(id);
  }
  return ids;
}

std::vector<BlockId> BlockIndex::All() const {
  std::vector<BlockId> ids;
  ids.reserve(nodes_.size());
  for (const auto& [id, node] : nodes_) ids.push_back(id);
  return ids;
}

}  // namespace strata::kvstore
