// Merge rules by pair of symbols: an open-addressing table of 16-byte slots, because a lookup per
// adjacent pair is what byte-pair encoding spends its time on. Filled once, then read by any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::tokenizer {

struct MergeRule {
  static constexpr uint32_t kNoRank = 0xFFFFFFFF;
  uint32_t rank = kNoRank;  // lower merges first
  uint32_t result = 0;      // symbol of the two joined
};

class PairTable {
 public:
  // Room for `count` rules.
  explicit PairTable(size_t count) {
    size_t capacity = 16;
    while (capacity < count * 2) capacity *= 2;
    slots_.resize(capacity);
    while ((size_t{1} << (64 - shift_)) < capacity) --shift_;
  }

  // Keeps the first rule of a pair, as the lower rank wins. Never more than `count` calls.
  void Insert(uint32_t left, uint32_t right, MergeRule rule) {
    Slot& slot = slots_[SlotOf(Key(left, right))];
    if (slot.key == kEmpty) slot = {Key(left, right), rule};
  }

  MergeRule Find(uint32_t left, uint32_t right) const {
    return slots_[SlotOf(Key(left, right))].rule;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    MergeRule rule;
  };
  static uint64_t Key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

  // The slot holding the key, or the empty one where it would go.
  size_t SlotOf(uint64_t key) const {
    size_t i = key * 0x9E3779B97F4A7C15u >> shift_;
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & (slots_.size() - 1);
    return i;
  }

  std::vector<Slot> slots_;
  int shift_ = 63;
};

}  // namespace strata::tokenizer
