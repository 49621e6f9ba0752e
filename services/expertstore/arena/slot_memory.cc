#include "services/expertstore/arena/slot_memory.h"

#include <utility>

#include "common/base/log.h"

namespace strata::expertstore {

SlotMemory::SlotMemory(const SlotPlan& plan, Arena& arena,
                       std::function<void()> before_first_release)
    : plan_(plan),
      arena_(arena),
      before_first_release_(std::move(before_first_release)),
      released_(plan.slots),
      slot_bytes_(plan.bytes) {}

const shm::ClassRecord& SlotMemory::ClassOf(uint32_t slot) const {
  size_t c = 0;
  while (slot - plan_.classes[c].first_slot >= plan_.classes[c].slots) ++c;
  return plan_.classes[c];
}

SlotMemory::Range SlotMemory::PagesOf(uint32_t slot) const {
  const shm::ClassRecord& record = ClassOf(slot);
  const uint64_t page = arena_.page_bytes();
  uint32_t first = slot;
  uint32_t end = slot + 1;
  const auto at = [&](uint32_t s) {
    return record.arena_offset + uint64_t{s - record.first_slot} * record.slot_bytes;
  };
  while (at(first) % page != 0 && first > record.first_slot && released_[first - 1]) --first;
  while (at(end) % page != 0 && end < record.first_slot + record.slots && released_[end]) ++end;
  return {at(first), at(end)};
}

void SlotMemory::Release(uint32_t slot) {
  if (before_first_release_) std::exchange(before_first_release_, nullptr)();
  released_[slot] = true;
  slot_bytes_ -= ClassOf(slot).slot_bytes;
  const Range range = PagesOf(slot);
  if (const absl::Status status = arena_.Release(range.from, range.to); !status.ok()) {
    LogWarning(status.message());
  }
}

bool SlotMemory::Take(uint32_t slot) {
  const shm::ClassRecord& record = ClassOf(slot);
  const uint64_t from = record.arena_offset + (slot - record.first_slot) * record.slot_bytes;
  if (!arena_.Take(from, from + record.slot_bytes)) return false;
  released_[slot] = false;
  slot_bytes_ += record.slot_bytes;
  return true;
}

}  // namespace strata::expertstore
