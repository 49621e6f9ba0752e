#include "common/shm/client_peer.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "common/base/status.h"
#include "common/shm/futex.h"

namespace strata::shm {
namespace {

bool Valid(uint64_t word, uint32_t experts, Request* request) {
  if (word >> 48 != 0) return false;
  const uint64_t op = word >> 40 & 0xff;
  const uint64_t priority = word >> 32 & 0xff;
  if (op < static_cast<uint64_t>(RequestOp::kWant) ||
      op > static_cast<uint64_t>(RequestOp::kElsewhere) || priority >= kPriorities) {
    return false;
  }
  request->op = static_cast<RequestOp>(op);
  request->priority = static_cast<Priority>(priority);
  request->expert = static_cast<uint32_t>(word);
  return request->expert < experts;
}

}  // namespace

ClientPeer::ClientPeer(std::span<std::byte> block, uint32_t slots, uint32_t experts)
    : experts_(experts) {
  const BlockLayout layout = BlockLayout::For(slots);
  header_ = new (block.data()) BlockHeader;
  pins_ = reinterpret_cast<const Atomic<uint32_t>*>(block.data() + layout.pins);
  uses_ = reinterpret_cast<const Atomic<uint64_t>*>(block.data() + layout.uses);
  requests_ = reinterpret_cast<const Atomic<uint64_t>*>(block.data() + layout.requests);
  failures_ = reinterpret_cast<Failure*>(block.data() + layout.failures);
}

absl::Status ClientPeer::TakeRequests(std::vector<Request>* requests) {
  const uint64_t tail = header_->request_tail.load(std::memory_order_seq_cst);
  const uint64_t count = tail - request_head_;
  if (count > kRequestRing) {
    return absl::InvalidArgumentError(
        absl::StrCat("request ring: ", count, " new entries in a ring of ", kRequestRing));
  }
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t word =
        requests_[(request_head_ + i) % kRequestRing].load(std::memory_order_relaxed);
    Request request;
    if (!Valid(word, experts_, &request)) {
      return absl::InvalidArgumentError(
          absl::StrCat("request ring: invalid entry 0x", absl::Hex(word)));
    }
    requests->push_back(request);
  }
  request_head_ = tail;
  header_->request_head.store(tail, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status ClientPeer::PushFailure(uint32_t expert, const absl::Status& status) {
  const uint64_t head = header_->failure_head.load(std::memory_order_acquire);
  if (failure_tail_ - head >= kFailureRing) {  // also true for a head beyond the tail
    return absl::InvalidArgumentError("failure ring: full; the client does not read it");
  }
  Failure& failure = failures_[failure_tail_ % kFailureRing];
  failure.expert = expert;
  failure.code = static_cast<uint32_t>(status.code());
  const size_t length = std::min(status.message().size(), failure.text.size() - 1);
  std::memcpy(failure.text.data(), status.message().data(), length);
  failure.text[length] = '\0';
  header_->failure_tail.store(++failure_tail_, std::memory_order_release);
  return absl::OkStatus();
}

void ClientPeer::Wake() {
  // An increment, since the client may increment it too (ArenaClient::WakeSelf).
  header_->wake.fetch_add(1, std::memory_order_release);
  FutexWakeAll(header_->wake);
}

}  // namespace strata::shm
