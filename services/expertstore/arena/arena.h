// The arena's memory: a sealed memfd, in huge pages where the system gives them, every page present
// from the start (a page fault in the middle of a token costs more than one at the start).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/memory_map.h"
#include "common/base/unique_fd.h"
#include "services/expertstore/arena/slot_plan.h"

#include "absl/status/statusor.h"

namespace strata::expertstore {

class Arena {
 public:
  // At most `bytes` (rounded up to 2 MiB). When the system refuses that much memory, less: a
  // smaller store works, a dead one does not. ResourceExhausted below `least`.
  static absl::StatusOr<Arena> Create(uint64_t bytes, uint64_t least);

  // Forbids new writable mappings (`sealed`) or only changes of size.
  absl::Status SealFor(bool sealed);

  std::byte* data() { return map_.data(); }
  uint64_t size() const { return map_.size(); }
  int fd() const { return fd_.get(); }
  bool huge_pages() const { return huge_; }

 private:
  Arena() = default;
  UniqueFd fd_;
  MemoryMap map_;
  bool huge_ = false;
};

// Pieces of the arena of at most 1 GiB (io_uring's limit) in which no slot crosses a border.
std::vector<std::span<std::byte>> RegistrationPieces(const SlotPlan& plan, std::byte* arena);

}  // namespace strata::expertstore
