// Least recently used, over all layers together or layer by layer.
//
// A partition is a size class, or, with `by_layer`, a layer with an equal share of its class's
// slots. Each has two lists. Experts that decoding used are in the first; the second holds the
// others: what was loaded for a prompt or before anybody asked. Victims come from the second list
// as long as it has any, so a prompt that passes over all experts takes from decoding's only the
// few slots that it reads into at a time. In the second list a prompt evicts the most recently
// used: it comes back to the experts in the order in which it used them, so the last one is needed
// latest (an arena that holds a share of the experts then serves that share of every later chunk;
// evicting the oldest would serve nothing).
//
// A list over all layers that is smaller than the experts of one token hits nothing: each is
// evicted just before its next use. A list per layer is immune to that (see make_policy.h).
#pragma once

#include <vector>

#include "common/policy/eviction_policy.h"
#include "common/policy/number_lists.h"

namespace strata::policy {

class LeastRecent : public EvictionPolicy {
 public:
  LeastRecent(Shape shape, bool by_layer);

  void Use(uint32_t expert, uint32_t tokens, Phase phase) override;
  void Insert(uint32_t expert, std::optional<Phase> phase) override;
  void Erase(uint32_t expert) override { lists_.Remove(expert); }
  std::optional<uint32_t> Victim(uint32_t incoming, Phase phase,
                                 absl::FunctionRef<bool(uint32_t)> may_go) override;

 private:
  uint32_t PartitionOf(uint32_t expert) const {
    return by_layer_ ? shape_.layer[expert] : shape_.size_class[expert];
  }
  static uint32_t Decoding(uint32_t partition) { return 2 * partition; }
  static uint32_t Others(uint32_t partition) { return 2 * partition + 1; }
  uint32_t SizeOf(uint32_t partition) const {
    return lists_.size(Decoding(partition)) + lists_.size(Others(partition));
  }
  std::optional<uint32_t> VictimIn(uint32_t partition, Phase phase,
                                   absl::FunctionRef<bool(uint32_t)> may_go) const;

  const Shape shape_;
  const bool by_layer_;
  std::vector<std::vector<uint32_t>> class_partitions_;  // by size class
  std::vector<uint32_t> share_;                          // slots, by partition
  NumberLists lists_;
};

}  // namespace strata::policy
