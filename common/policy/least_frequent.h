// Least frequently used, uses forgotten exponentially (hotness.h). Decoding's experts need no
// further protection: a prompt's uses count less there.
//
// Experts are sorted into levels of a quarter octave of their value; a victim is drawn at random
// from the lowest level and the one above it. Values that differ so little say nothing about the
// next use, and a strict order would evict experts that are used in turn (each once per token, in
// an arena smaller than one token's experts) exactly before their next use, so that nothing would
// ever hit.
#pragma once

#include <map>
#include <vector>

#include "common/policy/eviction_policy.h"
#include "common/policy/hotness.h"

namespace strata::policy {

class LeastFrequent : public EvictionPolicy {
 public:
  // `hotness` must outlive the policy; its owner counts the uses there before telling the policy.
  LeastFrequent(Shape shape, const Hotness& hotness);

  void Use(uint32_t expert, uint32_t tokens, Phase phase) override;
  void Insert(uint32_t expert, std::optional<Phase> phase) override;
  void Erase(uint32_t expert) override;
  std::optional<uint32_t> Victim(uint32_t incoming, Phase phase,
                                 absl::FunctionRef<bool(uint32_t)> may_go) override;

 private:
  // Residents of one class by level; levels of one class are few, whatever the number of experts.
  using Levels = std::map<int, std::vector<uint32_t>>;
  struct Place {
    bool resident = false;
    int level = 0;
    size_t at = 0;  // in the level
  };
  int LevelOf(uint32_t expert) const;
  // After all values were scaled down.
  void SortAnew();

  const Shape shape_;
  const Hotness& hotness_;
  std::vector<Place> places_;   // by expert
  std::vector<Levels> levels_;  // by size class
  uint64_t epoch_ = 0;
  uint64_t draws_ = 0;
};

}  // namespace strata::policy
