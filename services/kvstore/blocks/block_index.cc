#include "services/kvstore/blocks/block_index.h"

#include <algorithm>

namespace strata::kvstore {
namespace {

constexpr uint64_t kProtectMs = 60'000;  // a plan is followed within seconds
constexpr size_t kMaxProtected = 1000;   // before expired ones are looked for
constexpr size_t kSupersededShare = 8;   // of the text before it, at most an eighth

}  // namespace

const BlockRecord* BlockIndex::Get(const BlockId& id) const {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? nullptr : &it->second.record;
}

RetentionKind BlockIndex::KindOf(const BlockRecord& record) {
  const Standing standing = record.superseded                    ? Standing::kSuperseded
                            : record.returned || record.uses > 0 ? Standing::kReturned
                                                                 : Standing::kOnce;
  return kvstore::KindOf(standing, record.tokens.size(), record.footprint());
}

void BlockIndex::TakeOut(const BlockId& id, const Node& node) {
  if (!Evictable(node)) return;
  const auto kind = order_.find(KindOf(node.record));
  kind->second.erase({node.record.last_used_ms, id});
  if (kind->second.empty()) order_.erase(kind);
}

void BlockIndex::PutIn(const BlockId& id, const Node& node) {
  if (Evictable(node)) order_[KindOf(node.record)].insert({node.record.last_used_ms, id});
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
  PutIn(id, node);
  nodes_.emplace(id, std::move(node));
  const auto it = nodes_.find(parent);
  if (it == nodes_.end()) {
    roots_[parent].push_back(id);
    return;
  }
  TakeOut(parent, it->second);
  it->second.children.push_back(id);
}

void BlockIndex::Erase(const BlockId& id) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  TakeOut(id, it->second);
  protected_until_.erase(id);
  Node node = std::move(it->second);
  bytes_ -= node.record.footprint();
  nodes_.erase(it);
  if (!node.children.empty()) roots_[id] = std::move(node.children);
  if (const auto parent = nodes_.find(node.record.parent); parent != nodes_.end()) {
    std::erase(parent->second.children, id);
    PutIn(parent->first, parent->second);
  } else if (const auto root = roots_.find(node.record.parent); root != roots_.end()) {
    std::erase(root->second, id);
    if (root->second.empty()) roots_.erase(root);
  }
}

void BlockIndex::Clear() {
  nodes_.clear();
  roots_.clear();
  order_.clear();
  protected_until_.clear();
  bytes_ = 0;
}

void BlockIndex::Move(const BlockId& id, const Extent& extent) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  TakeOut(id, it->second);
  BlockRecord& record = it->second.record;
  bytes_ -= record.footprint();
  record.extent = extent;
  bytes_ += record.footprint();
  PutIn(id, it->second);
}

void BlockIndex::Touch(const BlockId& id, uint64_t now_ms) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  TakeOut(id, it->second);
  it->second.record.last_used_ms = now_ms;
  PutIn(id, it->second);
}

void BlockIndex::CountUse(const BlockId& id, uint64_t now_ms) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  TakeOut(id, it->second);
  BlockRecord& record = it->second.record;
  record.last_used_ms = now_ms;
  ++record.uses;
  record.superseded = false;
  PutIn(id, it->second);
}

void BlockIndex::Protect(const BlockId& id, uint64_t now_ms) {
  if (protected_until_.size() > kMaxProtected) {
    absl::erase_if(protected_until_, [&](const auto& p) { return p.second <= now_ms; });
  }
  if (nodes_.contains(id)) protected_until_[id] = now_ms + kProtectMs;
}

void BlockIndex::SetPinned(const BlockId& id, bool pinned) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  TakeOut(id, it->second);
  it->second.record.pinned = pinned;
  PutIn(id, it->second);
}

std::vector<BlockId> BlockIndex::ShortEnd(BlockId id, size_t tokens) const {
  std::vector<BlockId> path;
  for (size_t sum = 0;;) {
    const Node& node = nodes_.at(id);
    sum += node.record.tokens.size();
    if (node.record.pinned || node.record.uses > 0 || node.children.size() > 1 || sum > tokens) {
      return {};
    }
    path.push_back(id);
    if (node.children.empty()) return path;
    id = node.children[0];
  }
}

std::vector<BlockId> BlockIndex::NoteTurn(const BlockId& id) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return {};
  const auto parent = nodes_.find(it->second.record.parent);
  if (parent == nodes_.end()) return {};
  const BlockRecord& before = parent->second.record;
  std::vector<BlockId> others;
  std::vector<BlockId> end;
  for (const BlockId& child : parent->second.children) {
    if (child != id && !nodes_.at(child).record.superseded) others.push_back(child);
  }
  // Many go on from a system prompt. One that replaces a short end of a long text is taken for the
  // same conversation: its last answer came back in other words.
  if (others.size() == 1) {
    const size_t length = before.first_token + before.tokens.size();
    end = ShortEnd(others[0], length / kSupersededShare);
    for (const BlockId& old : end) {
      Node& node = nodes_.at(old);
      TakeOut(old, node);
      node.record.superseded = true;
      PutIn(old, node);
    }
    if (!end.empty()) others.clear();
  }
  if (!others.empty()) return end;
  TakeOut(id, it->second);
  it->second.record.returned = before.returned || before.uses > 0;
  PutIn(id, it->second);
  return end;
}

std::optional<BlockId> BlockIndex::NextVictim(uint64_t now_ms, const BlockId& keep) const {
  std::optional<BlockId> victim;
  std::optional<BlockId> promised;  // only if there is nothing else
  double least = 0;
  for (const auto& [kind, blocks] : order_) {
    for (const auto& [used, id] : blocks) {
      if (id == keep) continue;
      const auto until = protected_until_.find(id);
      if (until != protected_until_.end() && until->second > now_ms) {
        if (!promised) promised = id;
        continue;
      }
      const double value = RetentionValue(kind, now_ms > used ? now_ms - used : 0);
      if (!victim || value < least) {
        victim = id;
        least = value;
      }
      break;  // the others of this kind are worth more
    }
  }
  return victim ? victim : promised;
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
