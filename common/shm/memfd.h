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
  kOwnerWrites,  // also: no new writable mapping and no write(2); maps made before stay writable
};
absl::Status Seal(int fd, SealKind kind);

// Checks a received descriptor: of exactly `bytes` and carrying the seals of `kind`.
absl::Status CheckSealed(int fd, uint64_t bytes, SealKind kind);

}  // namespace strata::shm
