// The arena's memory: a sealed memfd, in huge pages where the system gives them, every page present
// from the start (a page fault in the middle of a token costs more than one at the start), unless
// it was given back.
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

  // Forbids changes of size, and makes the descriptor for clients: one that cannot be written
  // through (`sealed`), or the arena's own.
  absl::Status SealFor(bool sealed);

  // Gives the whole pages in [from, to) back to the system. Nothing may use them: no client, no
  // read, no buffers registered with the kernel (those would keep the old pages).
  absl::Status Release(uint64_t from, uint64_t to);
  // Makes the pages of [from, to) present again; false if the system refuses.
  bool Take(uint64_t from, uint64_t to);
  // What it takes of the system's memory now.
  uint64_t held_bytes() const;
  // Bytes that can be given back one by one.
  uint64_t page_bytes() const { return page_bytes_; }

  std::byte* data() { return map_.data(); }
  uint64_t size() const { return map_.size(); }
  int client_fd() const { return client_fd_.valid() ? client_fd_.get() : fd_.get(); }
  // How much of it, at least, was in huge pages when it was made.
  uint64_t huge_bytes() const { return huge_bytes_; }

 private:
  Arena() = default;
  UniqueFd fd_;
  UniqueFd client_fd_;
  MemoryMap map_;
  uint64_t huge_bytes_ = 0;
  uint64_t page_bytes_ = 4096;
};

// Pieces of the arena of at most 1 GiB (io_uring's limit) in which no slot crosses a border.
std::vector<std::span<std::byte>> RegistrationPieces(const SlotPlan& plan, std::byte* arena);

}  // namespace strata::expertstore
