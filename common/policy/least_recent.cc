#include "common/policy/least_recent.h"

#include <algorithm>
#include <utility>

namespace strata::policy {
namespace {

uint32_t Partitions(const Shape& shape, bool by_layer) {
  const std::vector<uint32_t>& of = by_layer ? shape.layer : shape.size_class;
  return of.empty() ? 0 : 1 + *std::max_element(of.begin(), of.end());
}

}  // namespace

LeastRecent::LeastRecent(Shape shape, bool by_layer)
    : shape_(std::move(shape)),
      by_layer_(by_layer),
      class_partitions_(shape_.class_slots.size()),
      share_(Partitions(shape_, by_layer)),
      lists_(shape_.experts(), 2 * Partitions(shape_, by_layer)) {
  std::vector<bool> known(share_.size());
  for (uint32_t e = 0; e < shape_.experts(); ++e) {
    const uint32_t partition = PartitionOf(e);
    if (known[partition]) continue;
    known[partition] = true;
    class_partitions_[shape_.size_class[e]].push_back(partition);
  }
  for (size_t c = 0; c < class_partitions_.size(); ++c) {
    for (const uint32_t partition : class_partitions_[c]) {
      share_[partition] =
          shape_.class_slots[c] / static_cast<uint32_t>(class_partitions_[c].size());
    }
  }
}

void LeastRecent::Use(uint32_t expert, uint32_t /*tokens*/, Phase phase) {
  if (!lists_.Contains(expert)) return;
  const uint32_t partition = PartitionOf(expert);
  if (phase == Phase::kPrompt && lists_.ListOf(expert) == Decoding(partition)) return;
  lists_.Remove(expert);
  lists_.PushFront(phase == Phase::kDecode ? Decoding(partition) : Others(partition), expert);
}

void LeastRecent::Insert(uint32_t expert, std::optional<Phase> phase) {
  const uint32_t partition = PartitionOf(expert);
  if (!phase) {
    lists_.PushBack(Others(partition), expert);
  } else {
    lists_.PushFront(*phase == Phase::kDecode ? Decoding(partition) : Others(partition), expert);
  }
}

std::optional<uint32_t> LeastRecent::VictimIn(uint32_t partition, Phase phase,
                                              absl::FunctionRef<bool(uint32_t)> may_go) const {
  const uint32_t others = Others(partition);
  if (phase != Phase::kDecode) {
    for (uint32_t e = lists_.front(others); e != NumberLists::kNone; e = lists_.TowardsBack(e)) {
      if (may_go(e)) return e;
    }
  }
  if (phase == Phase::kPromptAhead) return std::nullopt;
  for (const uint32_t list : {others, Decoding(partition)}) {
    for (uint32_t e = lists_.back(list); e != NumberLists::kNone; e = lists_.TowardsFront(e)) {
      if (may_go(e)) return e;
    }
  }
  return std::nullopt;
}

std::optional<uint32_t> LeastRecent::Victim(uint32_t incoming, Phase phase,
                                            absl::FunctionRef<bool(uint32_t)> may_go) {
  const uint32_t own = PartitionOf(incoming);
  if (SizeOf(own) >= share_[own]) {
    if (const auto victim = VictimIn(own, phase, may_go)) return victim;
  }
  // The layer has less than its share, or nothing that may go: whoever has most above his share.
  std::vector<uint32_t> partitions = class_partitions_[shape_.size_class[incoming]];
  std::sort(partitions.begin(), partitions.end(), [this](uint32_t a, uint32_t b) {
    const int64_t above_a = int64_t{SizeOf(a)} - share_[a];
    const int64_t above_b = int64_t{SizeOf(b)} - share_[b];
    return above_a != above_b ? above_a > above_b : a < b;
  });
  for (const uint32_t partition : partitions) {
    if (const auto victim = VictimIn(partition, phase, may_go)) return victim;
  }
  return std::nullopt;
}

}  // namespace strata::policy
