// The client's half of the data plane: pin, unpin, ask, wait. Works on memory that somebody else
// mapped (Attachment for another process's store; a test for one of its own).
//
// The pin protocol, and why it is safe
// ------------------------------------
//   client, pin                                store, evict
//   c0  w = entry          (acquire)           s1  entry = evicting     (seq_cst)
//   c1  pins[slot] += 1    (seq_cst)           s2  read every client's pins[slot]  (seq_cst)
//   c2  entry == w ?       (seq_cst)           s3  all zero: the slot is free, overwrite it
//       no: pins[slot] -= 1, a miss                not zero: look again later (s2)
//   ... read the slot's bytes ...
//   c3  pins[slot] -= 1    (seq_cst)
//
// (a) c1, c2, s1 and s2 are seq_cst, so they have one total order. If c1 is before s2, the store
//     sees the pin and waits. Otherwise s2 is before c1, hence s1 before c2, and the client sees an
//     entry that differs from w. In no order do both go ahead. (With weaker orders c2 could be
//     satisfied before c1 is visible, the store-load reordering every processor does.)
// (b) c2 reads the value that the store wrote when it published the slot; that write releases the
//     bytes put there before it, so the client sees them all. An equal w from an older residence
//     does not harm: the value c2 found is the current one and the pin was visible before.
// (c) Bytes are read before c3; the store's s2 that sees zero acquires c3, so the overwrite cannot
//     be seen by those reads.
// (d) A refused pin is visible for a moment; the store then merely waits a little longer.
//
// Waiting for slots: `starved` is a second pair of the same shape. The store sets it, then looks at
// the pins and the request rings; a client unpins (or sends kDone), then looks at it: one of them
// sees the other, so the store is never left asleep while a slot that it waits for is free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/shm/protocol.h"
#include "common/shm/table.h"

#include "absl/status/status.h"

namespace strata::shm {

// One thread at a time; many clients may work on one table. Never allocates; only Ring, Wait and
// TakeFailure's error path go beyond memory accesses.
class ArenaClient {
 public:
  ArenaClient() = default;
  // `block`: memory of BlockLayout::For(...).bytes of this client alone. `doorbell`: an eventfd.
  ArenaClient(const TableView& table, std::span<const std::byte> arena, std::span<std::byte> block,
              int doorbell);

  const TableView& table() const { return table_; }
  const std::byte* arena() const { return arena_; }

  // Pins the expert if it is resident and returns its slot.
  std::optional<uint32_t> TryPin(uint32_t expert);
  // Whether the expert is resident at this moment: a hint, nothing is held.
  bool Resident(uint32_t expert) const {
    const uint64_t word = table_.entry(expert).load(std::memory_order_relaxed);
    return Entry::Unpack(word).state == EntryState::kResident;
  }
  void Unpin(uint32_t slot) { pins_[slot].fetch_sub(1, std::memory_order_seq_cst); }
  // To be asked after one or several Unpin or kDone: does the store wait for a slot (then Ring)?
  bool StoreStarved() const { return table_.header().starved.load(std::memory_order_seq_cst) != 0; }

  // Notes a use: from these the store learns what to keep. It reads them when it has something to
  // do anyway; nobody is woken.
  void NoteUse(ExpertUse use) {
    // The only writer of the ring: a plain read, no locked instruction.
    const uint64_t tail = header_->use_tail.load(std::memory_order_relaxed);
    uses_[tail % kUseRing].store(use.Pack(), std::memory_order_relaxed);
    header_->use_tail.store(tail + 1, std::memory_order_release);
  }
  void CountBatch(uint64_t hits, uint64_t misses);

  // Appends to the request ring; false when it is full (ring the bell and try again later). The
  // store reads it at the latest after the next Ring().
  bool Push(Request request);
  void Ring();

  // The store's wake counter: read it before looking at entries, then wait for it to change.
  uint32_t WakeCount() const { return header_->wake.load(std::memory_order_acquire); }
  // Spins about `spins` times, then sleeps until the counter differs or the time is over.
  void Wait(uint32_t wake_count, int spins, int timeout_ms) const;
  // Wakes this client's own waiter, from any thread.
  void WakeSelf();

  // The next failed read reported to this client, if any.
  struct FailedRead {
    uint32_t expert;
    absl::Status status;
  };
  std::optional<FailedRead> TakeFailure();

 private:
  TableView table_;
  const std::byte* arena_ = nullptr;
  BlockHeader* header_ = nullptr;
  Atomic<uint32_t>* pins_ = nullptr;
  Atomic<uint64_t>* uses_ = nullptr;
  Atomic<uint64_t>* requests_ = nullptr;
  const Failure* failures_ = nullptr;
  int doorbell_ = -1;
};

}  // namespace strata::shm
