// Frequency of use with exponential forgetting.
//
// The value of an expert is the sum of its uses, each halved for every `half_life` uses (of any
// expert) since. Instead of shrinking all values at every use, a new use counts 2^(t / half_life),
// which gives the same order; all are scaled down together before they overflow.
//
// Values that differ by less than about a quarter of an octave count as equal and are ordered by a
// hash that changes from call to call. Without that, experts used in turn (each once per token, in
// an arena smaller than one token's experts) would be evicted exactly before their next use, and
// nothing would ever hit; random choice among equals hits a part of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/expertstore/policy/eviction_policy.h"

namespace strata::expertstore {

class DecayedFrequency : public EvictionPolicy {
 public:
  DecayedFrequency(uint32_t experts, double half_life);

  void Use(uint32_t expert, double weight) override;
  void Seed(uint32_t expert, double value) override { values_[expert] = value * growth_; }
  void Rank(size_t count, std::vector<uint32_t>* candidates) override;
  double Value(uint32_t expert) const override { return values_[expert] / growth_; }

 private:
  const double half_life_;
  double growth_ = 1;  // what one use counts now
  uint64_t calls_ = 0;
  std::vector<double> values_;
};

}  // namespace strata::expertstore
