#include "common/tokenizer/word_index.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

namespace strata::tokenizer {
namespace {

uint64_t Hash(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint32_t Tag(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

}  // namespace

WordIndex::WordIndex() : slots_(16) {}

size_t WordIndex::SlotOf(uint64_t hash, std::string_view bytes) const {
  size_t i = hash & (slots_.size() - 1);
  while (slots_[i].entry != kNone) {
    if (slots_[i].tag == Tag(hash)) {
      const Entry& entry = entries_[slots_[i].entry];
      if (std::string_view(entry.data, entry.size) == bytes) break;
    }
    i = (i + 1) & (slots_.size() - 1);
  }
  return i;
}

bool WordIndex::Insert(std::string_view bytes, uint32_t id) {
  if ((entries_.size() + 1) * 2 > slots_.size()) Grow();
  const uint64_t hash = Hash(bytes);
  Slot& slot = slots_[SlotOf(hash, bytes)];
  if (slot.entry != kNone) return false;
  slot = {Tag(hash), static_cast<uint32_t>(entries_.size())};
  entries_.push_back({bytes.data(), static_cast<uint32_t>(bytes.size()), id});
  return true;
}

std::optional<uint32_t> WordIndex::Find(std::string_view bytes) const {
  const Slot& slot = slots_[SlotOf(Hash(bytes), bytes)];
  if (slot.entry == kNone) return std::nullopt;
  return entries_[slot.entry].id;
}

void WordIndex::Grow() {
  slots_.assign(slots_.size() * 2, Slot{});
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    const std::string_view bytes(entries_[i].data, entries_[i].size);
    const uint64_t hash = Hash(bytes);
    slots_[SlotOf(hash, bytes)] = {Tag(hash), i};
  }
}

}  // namespace strata::tokenizer
