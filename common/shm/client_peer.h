// The store's half of one client block. The client can write any byte of the block at any time, so
// every value read here is checked, used once, and never believed to be what it was a moment ago.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/shm/protocol.h"

#include "absl/status/status.h"

namespace strata::shm {

// One thread (the store's data-plane thread).
class ClientPeer {
 public:
  // `block`: zeroed memory of BlockLayout::For(slots).bytes.
  ClientPeer(std::span<std::byte> block, uint32_t slots, uint32_t experts);

  // See arena_client.h, step s2.
  bool Pins(uint32_t slot) const { return pins_[slot].load(std::memory_order_seq_cst) != 0; }

  // Appends the requests written since the last call (at most one ring full). An error means that
  // the client breaks the protocol and must be dropped.
  absl::Status TakeRequests(std::vector<Request>* requests);

  // Reports a failed read. An error means that the client does not read its failures.
  absl::Status PushFailure(uint32_t expert, const absl::Status& status);

  // Tells the client that something it waits for has changed.
  void Wake();

  // Calls f(ExpertUse) for the uses since the last call, oldest first; of more than kUseRing only
  // the newest are left.
  template <typename F>
  void TakeUses(F&& f) {
    const uint64_t tail = header_->use_tail.load(std::memory_order_acquire);
    if (tail - use_head_ > kUseRing) use_head_ = tail - kUseRing;
    // An entry that is overwritten at this moment is merely a newer use.
    for (; use_head_ != tail; ++use_head_) {
      const ExpertUse use =
          ExpertUse::Unpack(uses_[use_head_ % kUseRing].load(std::memory_order_relaxed));
      if (use.expert < experts_) f(use);
    }
  }

  uint64_t hits() const { return header_->hits.load(std::memory_order_relaxed); }
  uint64_t misses() const { return header_->misses.load(std::memory_order_relaxed); }

 private:
  BlockHeader* header_;
  const Atomic<uint32_t>* pins_;
  const Atomic<uint64_t>* uses_;
  const Atomic<uint64_t>* requests_;
  Failure* failures_;
  // Our own copies of what we wrote: the ones in the block are for the client only.
  uint64_t request_head_ = 0;
  uint64_t failure_tail_ = 0;
  uint64_t use_head_ = 0;
  uint32_t experts_ = 0;
};

}  // namespace strata::shm
