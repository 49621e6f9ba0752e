// The atomic type of all shared-memory words: std::atomic, except in the test that runs this code
// through all interleavings of its accesses (tests/interleavings), where each access is a point at
// which another participant may come in between.
#pragma once

#ifdef STRATA_SHM_ATOMIC_HEADER
#include STRATA_SHM_ATOMIC_HEADER
#else
#include <atomic>

namespace strata::shm {

template <typename T>
using Atomic = std::atomic<T>;

}  // namespace strata::shm
#endif
