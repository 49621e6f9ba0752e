// A kvstore in memory, for engines in this process.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "services/compute/engine/runtime.h"
#include "services/compute/state/state_store.h"

namespace strata::compute {

// Keeps blocks in memory, as a kvstore would.
class MemoryStore final : public StateStore {
 public:
  void Restore(const v1::RestorePlan& plan, std::string_view,
               absl::FunctionRef<bool(std::vector<std::byte>)> take) override {
    std::vector<v1::BlockRef> refs(plan.blocks().begin(), plan.blocks().end());
    for (const v1::MovedRun& run : plan.runs()) {
      refs.insert(refs.end(), run.blocks().begin(), run.blocks().end());
    }
    if (plan.has_tail()) refs.push_back(plan.tail());
    for (const v1::BlockRef& ref : refs) {
      std::vector<std::byte> bytes;
      {
        const std::lock_guard lock(mutex_);
        const auto it = blocks_.find(ref.id());
        if (it == blocks_.end()) return;
        bytes = it->second.bytes;
      }
      if (!take(std::move(bytes))) return;
    }
  }
  void Save(SavedBlock block) override {
    const std::lock_guard lock(mutex_);
    blocks_[block.id.ToString()] = std::move(block);
  }
  bool connected() const override { return true; }

  // What kvstore's Plan would answer for these tokens.
  v1::RestorePlan Plan(const Runtime& runtime, std::span<const uint32_t> tokens) {
    const std::lock_guard lock(mutex_);
    v1::RestorePlan plan;
    state::BlockId id = *state::BlockIdFromRaw(RootOf(runtime));
    constexpr size_t kBlock = KvCache::kPageTokens;
    for (size_t first = 0; first + kBlock <= tokens.size(); first += kBlock) {
      id = state::ChildId(id, tokens.subspan(first, kBlock));
      const auto it = blocks_.find(id.ToString());
      if (it == blocks_.end()) break;
      SetRef(it->second, *plan.add_blocks());
      plan.set_reused_tokens(static_cast<uint32_t>(first + kBlock));
    }
    AddTail(tokens, plan.blocks_size() == 0 ? RootOf(runtime) : plan.blocks().rbegin()->id(), plan);
    return plan;
  }
  // A plan that moves tokens [old_first, old_first + count) of `stored` to `first`.
  v1::RestorePlan Move(const Runtime& runtime, std::span<const uint32_t> stored, uint32_t old_first,
                       uint32_t count, uint32_t first, v1::SpliceMode mode) {
    const v1::RestorePlan whole = Plan(runtime, stored);
    v1::RestorePlan plan;
    plan.set_splice(mode);
    v1::MovedRun& run = *plan.add_runs();
    run.set_first_token(first);
    run.set_tokens(count);
    run.set_old_first_token(old_first);
    for (const v1::BlockRef& ref : whole.blocks()) {
      if (ref.first_token() + KvCache::kPageTokens > old_first &&
          ref.first_token() < old_first + count) {
        *run.add_blocks() = ref;
      }
    }
    return plan;
  }
  std::map<std::string, SavedBlock> blocks() {
    const std::lock_guard lock(mutex_);
    return blocks_;
  }
  void DropAllBut(size_t count) {
    const std::lock_guard lock(mutex_);
    while (blocks_.size() > count) blocks_.erase(std::prev(blocks_.end()));
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return blocks_.size();
  }

 private:
  static std::string RootOf(const Runtime& runtime) {
    return state::RootId(runtime.fingerprint().hash(), runtime.layout().hash(), "").ToString();
  }
  static void SetRef(const SavedBlock& block, v1::BlockRef& ref) {
    ref.set_id(block.id.ToString());
    ref.set_first_token(block.first_token);
    ref.set_tokens(static_cast<uint32_t>(block.tokens.size()));
    ref.set_lineage(static_cast<v1::Lineage>(block.lineage));
    ref.set_checkpoint(block.checkpoint);
  }
  // The exact block or checkpoint behind `parent` that begins most like the tokens.
  void AddTail(std::span<const uint32_t> tokens, const std::string& parent, v1::RestorePlan& plan) {
    const std::span<const uint32_t> rest = tokens.subspan(plan.reused_tokens());
    size_t most = 0;
    for (const auto& [id, block] : blocks_) {
      if (block.parent.ToString() != parent || block.lineage != state::Lineage::kExact) continue;
      const auto same = static_cast<size_t>(
          std::mismatch(block.tokens.begin(), block.tokens.end(), rest.begin(), rest.end()).first -
          block.tokens.begin());
      if (same <= most) continue;
      most = same;
      SetRef(block, *plan.mutable_tail());
    }
    plan.set_reused_tokens(plan.reused_tokens() + static_cast<uint32_t>(most));
  }

  std::mutex mutex_;
  std::map<std::string, SavedBlock> blocks_;
};

}  // namespace strata::compute
