// Anonymous shared memory with seals (memfd_create(2)): the store creates it, sends the descriptor
// to clients, and the seals tell each side what the other can no longer do.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/unique_fd.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::shm {

// A memfd of `bytes` zero bytes. With `huge_tlb` from the reserved pool of 2 MiB pages: bytes must
// be a multiple of 2 MiB, and mapping fails where the pool is too small.
absl::StatusOr<UniqueFd> CreateMemfd(const std::string& name, uint64_t bytes,
                                     bool huge_tlb = false);

enum class SealKind {
  kFixedSize,    // nobody can grow or shrink it: a peer cannot turn our accesses into SIGBUS
  kOwnerWrites,  // also: no new writable mapping and no write(2); maps made before stay writable.
                 // Nobody can give its pages back any more, either (fallocate(2), PUNCH_HOLE).
};
absl::Status Seal(int fd, SealKind kind);

// Another descriptor of the memory, through which it cannot be written or mapped writable. For
// memory whose pages the owner means to give back, in place of kOwnerWrites. The permission bits of
// the memory become 0444, so that a receiver of another user cannot open it for writing either
// (/proc/self/fd); root, or the owner's own user, still could.
absl::StatusOr<UniqueFd> ReadOnlyDescriptor(int fd);

// Checks a received descriptor: of exactly `bytes` and carrying the seals of `kind`.
absl::Status CheckSealed(int fd, uint64_t bytes, SealKind kind);
// Checks that a received descriptor was opened for reading only.
absl::Status CheckReadOnly(int fd);

}  // namespace strata::shm
