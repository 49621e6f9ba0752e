// One word of the residency table: where an expert is, in 64 bits, so that a single atomic load
// tells all of it.
//
//   bits 62..63  state
//   bits 32..61  slot (meaningful unless absent)
//   bits  0..31  generation: counts the loads of this expert, so a copy made elsewhere (device
//                memory) can tell whether it was made from the same load
#pragma once

#include <cstdint>

namespace strata::shm {

enum class EntryState : uint32_t {
  kAbsent = 0,    // not in the arena
  kLoading = 1,   // a read into the slot is under way
  kResident = 2,  // the slot's bytes are valid for whoever pins the slot
  kEvicting = 3,  // the store waits for the last pins; nobody may pin any more
};

inline constexpr uint32_t kMaxSlots = 1u << 30;

struct Entry {
  EntryState state = EntryState::kAbsent;
  uint32_t slot = 0;
  uint32_t generation = 0;

  constexpr uint64_t Pack() const {
    return static_cast<uint64_t>(state) << 62 | static_cast<uint64_t>(slot) << 32 | generation;
  }
  static constexpr Entry Unpack(uint64_t word) {
    return {static_cast<EntryState>(word >> 62),
            static_cast<uint32_t>(word >> 32) & (kMaxSlots - 1), static_cast<uint32_t>(word)};
  }
};

}  // namespace strata::shm
