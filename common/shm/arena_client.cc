#include "common/shm/arena_client.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "common/base/status.h"
#include "common/shm/futex.h"

namespace strata::shm {

ArenaClient::ArenaClient(const TableView& table, std::span<const std::byte> arena,
                         std::span<std::byte> block, int doorbell)
    : table_(table), arena_(arena.data()), doorbell_(doorbell) {
  const BlockLayout layout = BlockLayout::For(table.slots());
  header_ = reinterpret_cast<BlockHeader*>(block.data());
  pins_ = reinterpret_cast<Atomic<uint32_t>*>(block.data() + layout.pins);
  uses_ = reinterpret_cast<Atomic<uint64_t>*>(block.data() + layout.uses);
  requests_ = reinterpret_cast<Atomic<uint64_t>*>(block.data() + layout.requests);
  failures_ = reinterpret_cast<const Failure*>(block.data() + layout.failures);
}

std::optional<uint32_t> ArenaClient::TryPin(uint32_t expert) {
  const Atomic<uint64_t>& word = table_.entry(expert);
  const uint64_t seen = word.load(std::memory_order_acquire);
  const Entry entry = Entry::Unpack(seen);
  if (entry.state != EntryState::kResident || entry.slot >= table_.slots()) return std::nullopt;
  pins_[entry.slot].fetch_add(1, std::memory_order_seq_cst);
  if (word.load(std::memory_order_seq_cst) != seen) {
    Unpin(entry.slot);
    // The store may have seen the pin that is gone again, and gone to sleep on it.
    if (StoreStarved()) Ring();
    return std::nullopt;
  }
  return entry.slot;
}

void ArenaClient::CountBatch(uint64_t hits, uint64_t misses) {
  const auto add = [](Atomic<uint64_t>& counter, uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  };
  add(header_->hits, hits);
  add(header_->misses, misses);
}

bool ArenaClient::Push(Request request) {
  const uint64_t tail = header_->request_tail.load(std::memory_order_relaxed);
  // acquire: the store has read the entry that is about to be overwritten
  const uint64_t head = header_->request_head.load(std::memory_order_acquire);
  if (tail - head >= kRequestRing) return false;
  requests_[tail % kRequestRing].store(request.Pack(), std::memory_order_relaxed);
  // seq_cst, not just release: a kDone may free a slot, so it is ordered before StoreStarved().
  header_->request_tail.store(tail + 1, std::memory_order_seq_cst);
  return true;
}

void ArenaClient::Ring() {
  const uint64_t one = 1;
  // EAGAIN means that the counter is full: the bell is ringing already.
  [[maybe_unused]] const ssize_t written = write(doorbell_, &one, sizeof(one));
}

void ArenaClient::Wait(uint32_t wake_count, int spins, int timeout_ms) const {
  for (int i = 0; i < spins; ++i) {
    if (header_->wake.load(std::memory_order_relaxed) != wake_count) return;
    CpuRelax();
  }
  FutexWait(header_->wake, wake_count, timeout_ms);
}

void ArenaClient::WakeSelf() {
  header_->wake.fetch_add(1, std::memory_order_release);
  FutexWakeAll(header_->wake);
}

std::optional<ArenaClient::FailedRead> ArenaClient::TakeFailure() {
  const uint64_t head = header_->failure_head.load(std::memory_order_relaxed);
  if (head == header_->failure_tail.load(std::memory_order_acquire)) return std::nullopt;
  const Failure& failure = failures_[head % kFailureRing];
  const size_t length = strnlen(failure.text.data(), failure.text.size());
  FailedRead result{failure.expert, absl::Status(static_cast<absl::StatusCode>(failure.code),
                                                 absl::string_view(failure.text.data(), length))};
  header_->failure_head.store(head + 1, std::memory_order_release);
  return result;
}

}  // namespace strata::shm
