// Which experts to give up when room is needed. Knows uses, not clients, slots or pins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::expertstore {

// One thread.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // `weight` uses of an expert: 1 for a token of decoding, less for one of a prompt.
  virtual void Use(uint32_t expert, double weight) = 0;
  // A value from an earlier run, as Value() gave it.
  virtual void Seed(uint32_t expert, double value) = 0;
  // Cuts `candidates` down to the `count` least valuable, least valuable first.
  virtual void Rank(size_t count, std::vector<uint32_t>* candidates) = 0;
  // Comparable value of an expert now; 0 = never used.
  virtual double Value(uint32_t expert) const = 0;
};

}  // namespace strata::expertstore
