#include "services/kvstore/blocks/block_index.h"

#include <algorithm>
#include <tuple>

namespace strata::kvstore {
namespace {

constexpr uint64_t kProtectMs = 60'000;  // a plan is followed within seconds
constexpr size_t kMaxProtected = 1000;   // before expired ones are looked for
constexpr size_t kSupersededShare = 8;   // of the text before it, at most an eighth

// Two prompts came back to it: it stands where several conversations part.
constexpr uint32_t kUsesOfAFork = 2;

bool BeginsWith(std::span<const uint32_t> tokens, std::span<const uint32_t> start) {
  return tokens.size() >= start.size() && std::equal(start.begin(), start.end(), tokens.begin());
}

}  // namespace

const BlockRecord* BlockIndex::Get(const BlockId& id) const {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? nullptr : &it->second.record;
}

RetentionKind BlockIndex::KindOf(const BlockRecord& record) {
  const Standing standing = record.superseded                    ? Standing::kSuperseded
                            : record.returned || record.uses > 0 ? Standing::kReturned
                                                                 : Standing::kOnce;
  const uint64_t saved = record.kind == Kind::kCheckpoint ? record.end() : record.tokens.size();
  return kvstore::KindOf(standing, saved, record.footprint(), record.older);
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
  checkpoints_ += record.kind == Kind::kBlock ? 0 : 1;
  if (record.pinned) pinned_.insert(id);
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
  pinned_.erase(id);
  Node node = std::move(it->second);
  bytes_ -= node.record.footprint();
  checkpoints_ -= node.record.kind == Kind::kBlock ? 0 : 1;
  nodes_.erase(it);
  if (!node.children.empty()) roots_[id] = std::move(node.children);
  if (const auto parent = nodes_.find(node.record.parent); parent != nodes_.end()) {
    std::erase(parent->second.children, id);
    PutIn(parent->first, parent->second);
  } else if (const auto root = roots_.find(node.record.parent); root != roots_.end()) {
    std::erase(root->second, id);
    if (root->second.empty()) roots_.erase(root);
  }
  if (node.record.kind != Kind::kCheckpoint) return;
  // Without a checkpoint behind them rows cannot be used.
  size_t children = 0;
  for (auto at = nodes_.find(node.record.parent);
       at != nodes_.end() && at->second.children.size() == children; children = 1) {
    TakeOut(at->first, at->second);
    at->second.record.superseded = true;
    PutIn(at->first, at->second);
    at = nodes_.find(at->second.record.parent);
  }
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
  record.older = 0;
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
  if (pinned) {
    pinned_.insert(id);
  } else {
    pinned_.erase(id);
  }
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
  const auto inherit = [&] {
    TakeOut(id, it->second);
    it->second.record.returned = before.returned || before.uses > 0;
    PutIn(id, it->second);
  };
  if (it->second.record.kind == Kind::kCheckpoint) {  // beside what goes on, not instead of it
    inherit();
    return {};
  }
  std::vector<BlockId> others;
  std::vector<BlockId> end;
  for (const BlockId& child : parent->second.children) {
    const BlockRecord& other = nodes_.at(child).record;
    // A checkpoint on the way to this block, or beside it, is no other conversation.
    const bool same =
        other.kind == Kind::kCheckpoint ||
        (other.kind == Kind::kTail && BeginsWith(it->second.record.tokens, other.tokens));
    if (child != id && !other.superseded && !same) others.push_back(child);
  }
  // Many go on from a system prompt. One that replaces a short end of a long text is taken for the
  // same conversation: its last answer came back in other words.
  if (others.size() == 1) {
    end = ShortEnd(others[0], before.end() / kSupersededShare);
    for (const BlockId& old : end) {
      Node& node = nodes_.at(old);
      TakeOut(old, node);
      node.record.superseded = true;
      PutIn(old, node);
    }
    if (!end.empty()) others.clear();
  }
  if (others.empty()) inherit();
  return end;
}

std::vector<BlockId> BlockIndex::NoteCheckpoint(const BlockId& id) {
  std::vector<BlockId> before;
  uint64_t first = UINT64_MAX;
  for (auto it = nodes_.find(id); it != nodes_.end(); it = nodes_.find(it->second.record.parent)) {
    for (const BlockId& sibling : Children(it->second.record.parent)) {
      const BlockRecord& record = nodes_.at(sibling).record;
      if (sibling == it->first || record.kind != Kind::kCheckpoint ||
          !BeginsWith(it->second.record.tokens, record.tokens)) {
        continue;
      }
      before.push_back(sibling);
      first = std::min(first, record.end());
    }
  }
  std::erase_if(before, [&](const BlockId& old) {
    Node& node = nodes_.at(old);
    BlockRecord& record = node.record;
    if (record.end() == first || record.uses >= kUsesOfAFork || record.older == kOldest) {
      return true;
    }
    TakeOut(old, node);
    ++record.older;
    PutIn(old, node);
    return false;
  });
  return before;
}

std::vector<BlockId> BlockIndex::TailsInside(const BlockId& id) const {
  std::vector<BlockId> tails;
  const BlockRecord* record = Get(id);
  if (record == nullptr || record->kind == Kind::kCheckpoint) return tails;
  for (const BlockId& sibling : Children(record->parent)) {
    const BlockRecord& other = nodes_.at(sibling).record;
    if (sibling != id && other.kind == Kind::kTail && record->lineage <= other.lineage &&
        BeginsWith(record->tokens, other.tokens)) {
      tails.push_back(sibling);
    }
  }
  return tails;
}

std::optional<BlockId> BlockIndex::Cover(const BlockId& parent, std::span<const uint32_t> tokens,
                                         state::Lineage lineage, const BlockId& self) const {
  for (const BlockId& child : Children(parent)) {
    const BlockRecord& record = nodes_.at(child).record;
    if (child != self && record.kind != Kind::kCheckpoint && record.lineage <= lineage &&
        BeginsWith(record.tokens, tokens)) {
      return child;
    }
  }
  return std::nullopt;
}

bool BlockIndex::IsInside(const BlockId& id, const BlockRecord& record) const {
  if (record.kind == Kind::kBlock) return false;
  if (record.tokens.empty()) return true;
  const std::span<const BlockId> siblings = Children(record.parent);
  return std::any_of(siblings.begin(), siblings.end(), [&](const BlockId& sibling) {
    const std::vector<uint32_t>& tokens = nodes_.at(sibling).record.tokens;
    return sibling != id && tokens.size() > record.tokens.size() &&
           BeginsWith(tokens, record.tokens);
  });
}

std::vector<BlockId> BlockIndex::CheckpointsOf(const BlockId& id) const {
  std::vector<BlockId> checkpoints;
  const BlockRecord* block = Get(id);
  if (block == nullptr || block->kind != Kind::kBlock) return checkpoints;
  for (const BlockId& child : Children(id)) {
    if (nodes_.at(child).record.kind != Kind::kBlock) checkpoints.push_back(child);
  }
  const std::span<const BlockId> siblings = Children(block->parent);
  for (const BlockId& sibling : siblings) {
    const BlockRecord& record = nodes_.at(sibling).record;
    if (record.kind == Kind::kBlock || record.tokens.empty() ||
        !BeginsWith(block->tokens, record.tokens)) {
      continue;
    }
    const bool others = std::any_of(siblings.begin(), siblings.end(), [&](const BlockId& other) {
      const BlockRecord& node = nodes_.at(other).record;
      return other != id && node.kind == Kind::kBlock && BeginsWith(node.tokens, record.tokens);
    });
    if (!others) checkpoints.push_back(sibling);
  }
  return checkpoints;
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
  if (record == nullptr || record->kind != Kind::kBlock ||
      record->lineage != state::Lineage::kExact) {
    return std::nullopt;
  }
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
  const BlockRecord* found = nullptr;
  for (const BlockId& child : Children(parent)) {
    const BlockRecord& record = nodes_.at(child).record;
    if (record.lineage > least) continue;
    const std::vector<uint32_t>& tokens = record.tokens;
    const auto differs = std::mismatch(tokens.begin(), tokens.end(), rest.begin(), rest.end());
    const auto same = static_cast<size_t>(differs.first - tokens.begin());
    if (same == 0) continue;
    const auto rank = [](size_t start, const BlockRecord& block, const BlockRecord& other) {
      return std::tuple(start, other.lineage, block.tokens.size(), block.last_used_ms);
    };
    if (found != nullptr && rank(same, record, *found) <= rank(best.tokens, *found, record)) {
      continue;
    }
    best = {same, child};
    found = &record;
  }
  return best;
}

std::optional<BlockId> BlockIndex::LongestCheckpoint(const BlockId& parent,
                                                     std::span<const uint32_t> rest,
                                                     state::Lineage least) const {
  std::optional<BlockId> best;
  const BlockRecord* found = nullptr;
  for (const BlockId& child : Children(parent)) {
    const BlockRecord& record = nodes_.at(child).record;
    if (record.kind != Kind::kCheckpoint || record.lineage > least ||
        record.tokens.size() >= rest.size() || !BeginsWith(rest, record.tokens)) {
      continue;
    }
    if (found != nullptr && std::pair(record.tokens.size(), found->lineage) <=
                                std::pair(found->tokens.size(), record.lineage)) {
      continue;
    }
    best = child;
    found = &record;
  }
  return best;
}

BlockId BlockIndex::LastUsedEnd(BlockId id) const {
  for (;;) {
    std::optional<BlockId> next;
    uint64_t used = 0;
    for (const BlockId& child : Children(id)) {
      const BlockRecord& record = nodes_.at(child).record;
      const uint64_t at = record.last_used_ms;
      if ((next && at <= used) || IsInside(child, record)) continue;
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
    const bool last =
        std::all_of(node.children.begin(), node.children.end(),
                    [&](const BlockId& child) { return nodes_.at(child).record.tokens.empty(); });
    if (last && !IsInside(id, node.record)) ids.push_back(id);
  }
  return ids;
}

bool BlockIndex::IsFork(const BlockId& id) const {
  size_t ends = 0;
  for (const BlockId& child : Children(id)) {
    const BlockRecord& record = nodes_.at(child).record;
    if (!IsInside(child, record) && ++ends > 1) return true;
  }
  return false;
}

std::vector<BlockId> BlockIndex::All() const {
  std::vector<BlockId> ids;
  ids.reserve(nodes_.size());
  for (const auto& [id, node] : nodes_) ids.push_back(id);
  return ids;
}

}  // namespace strata::kvstore
