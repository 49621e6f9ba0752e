// BlockStore for people: what it holds, and whether it is sound.
#include <algorithm>
#include <utility>

#include "services/kvstore/blocks/block_store.h"

namespace strata::kvstore {

Conversation BlockStore::Describe(const BlockId& end, uint32_t tokens) const {
  Conversation conversation;
  conversation.last = *index_.Get(end);
  bool own = true;
  for (BlockId id = end;;) {
    const BlockRecord* record = index_.Get(id);
    if (record == nullptr) break;
    own = own && !index_.IsFork(id);
    if (own) {
      ++conversation.own_blocks;
      conversation.own_bytes += record->footprint();
    }
    conversation.chain.push_back(Planned(id));
    id = record->parent;
  }
  std::reverse(conversation.chain.begin(), conversation.chain.end());
  for (size_t i = conversation.chain.size() - conversation.own_blocks;
       i < conversation.chain.size() && conversation.own_tokens.size() < tokens; ++i) {
    const auto& more = index_.Get(conversation.chain[i].id)->tokens;
    conversation.own_tokens.insert(conversation.own_tokens.end(), more.begin(), more.end());
  }
  if (conversation.own_tokens.size() > tokens) conversation.own_tokens.resize(tokens);
  return conversation;
}

std::vector<Conversation> BlockStore::List(std::optional<BlockId> id, uint32_t tokens) const {
  const std::lock_guard lock(mutex_);
  std::vector<Conversation> conversations;
  for (const BlockId& end : index_.Ends()) {
    if (!id || *id == end) conversations.push_back(Describe(end, tokens));
  }
  std::sort(conversations.begin(), conversations.end(),
            [](const auto& a, const auto& b) { return a.last.last_used_ms > b.last.last_used_ms; });
  return conversations;
}

Verification BlockStore::Verify(const std::function<bool(const Verification&)>& progress) {
  std::vector<std::pair<Extent, BlockId>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const BlockId& id : index_.All()) all.emplace_back(index_.Get(id)->extent, id);
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.segment, a.first.offset) < std::pair(b.first.segment, b.first.offset);
  });
  Verification result;
  result.total_blocks = all.size();
  for (const auto& [extent, id] : all) {
    const uint64_t damaged = status().damaged_blocks;
    const absl::StatusOr<BlockData> data = Read(id);  // not there any more is no damage
    ++result.blocks;
    if (data.ok()) result.bytes += data->size();
    result.damaged += status().damaged_blocks - damaged;
    if (!progress(result)) break;
  }
  return result;
}

}  // namespace strata::kvstore
