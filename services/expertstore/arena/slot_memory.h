// Which slots of the arena have memory. Giving a slot's memory back and taking it again happens
// while the other slots are in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "services/expertstore/arena/arena.h"
#include "services/expertstore/arena/slot_plan.h"

namespace strata::expertstore {

// One thread. What it is given must outlive it.
class SlotMemory {
 public:
  // All slots have memory. `before_first_release` is called once, before any is given back.
  SlotMemory(const SlotPlan& plan, Arena& arena, std::function<void()> before_first_release);

  // The slot must be free: no expert in it, no read into it, no pin of it.
  void Release(uint32_t slot);
  // False if the system refuses; the slot then stays without memory.
  bool Take(uint32_t slot);

  std::byte* arena() { return arena_.data(); }
  // Of the slots that have memory.
  uint64_t slot_bytes() const { return slot_bytes_; }

 private:
  struct Range {
    uint64_t from = 0;
    uint64_t to = 0;
  };
  const shm::ClassRecord& ClassOf(uint32_t slot) const;
  // The slot's bytes, and those of neighbours without memory that share a page with it.
  Range PagesOf(uint32_t slot) const;

  const SlotPlan& plan_;
  Arena& arena_;
  std::function<void()> before_first_release_;
  std::vector<bool> released_;  // by slot
  uint64_t slot_bytes_;
};

}  // namespace strata::expertstore
