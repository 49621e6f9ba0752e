// How much each expert is used: frequency with exponential forgetting.
//
// The value of an expert is the sum of its uses, each halved for every `half_life` uses (of any
// expert) since. A token of decoding is one use, a token of a prompt kPromptWeight of one: a prompt
// touches nearly everything, but its counts are what decoding will use next. Instead of shrinking
// all values at every use, a new use counts 2^(t / half_life), which gives the same order; all are
// scaled down together before they overflow.
#pragma once

#include <cstdint>
#include <vector>

#include "common/policy/eviction_policy.h"

namespace strata::policy {

// One thread. Constant time.
class Hotness {
 public:
  static constexpr double kPromptWeight = 1.0 / 32;  // others measured .03 to be best

  // Uses are forgotten over some tens of tokens: a token uses about a sixteenth of the experts.
  explicit Hotness(uint32_t experts);
  Hotness(uint32_t experts, double half_life) : half_life_(half_life), values_(experts, 0.0) {}

  void Use(uint32_t expert, uint32_t tokens, Phase phase);
  // A value from an earlier run, as Value() gave it.
  void Seed(uint32_t expert, double value) { values_[expert] = value * growth_; }
  // Comparable value of an expert now; 0 = never used.
  double Value(uint32_t expert) const { return values_[expert] / growth_; }

  // The same on a scale that does not change with time: comparable between times of one epoch.
  double Raw(uint32_t expert) const { return values_[expert]; }
  uint64_t epoch() const { return epoch_; }

 private:
  const double half_life_;
  double growth_ = 1;   // what one use counts now
  uint64_t epoch_ = 0;  // times that all was scaled down
  std::vector<double> values_;
};

}  // namespace strata::policy
