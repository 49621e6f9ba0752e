#include "services/expertstore/policy/decayed_frequency.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace strata::expertstore {
namespace {

uint64_t Mix(uint64_t x) {  // a bijection that scatters neighbours
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct Key {
  int level;
  uint64_t hash;
  uint32_t expert;
  bool operator<(const Key& other) const {
    return level != other.level ? level < other.level : hash < other.hash;
  }
};

}  // namespace

DecayedFrequency::DecayedFrequency(uint32_t experts, double half_life)
    : half_life_(half_life), values_(experts, 0.0) {}

void DecayedFrequency::Use(uint32_t expert, double weight) {
  values_[expert] += weight * growth_;
  growth_ *= std::exp2(weight / half_life_);
  if (growth_ > 1e200) {
    for (double& value : values_) value /= growth_;
    growth_ = 1;
  }
}

void DecayedFrequency::Rank(size_t count, std::vector<uint32_t>* candidates) {
  constexpr int kNever = -1;
  ++calls_;
  // Levels are counted from the lowest value, so that no border between two levels can separate the
  // values that are almost the lowest.
  double lowest = std::numeric_limits<double>::infinity();
  for (const uint32_t expert : *candidates) {
    if (Value(expert) > 0) lowest = std::min(lowest, Value(expert));
  }
  std::vector<Key> keys;
  keys.reserve(candidates->size());
  for (const uint32_t expert : *candidates) {
    const double value = Value(expert);
    const int level = value > 0 ? static_cast<int>(4 * std::log2(value / lowest)) : kNever;
    keys.push_back({level, Mix(uint64_t{expert} << 32 ^ calls_), expert});
  }
  count = std::min(count, keys.size());
  std::partial_sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(count), keys.end());
  candidates->clear();
  for (size_t i = 0; i < count; ++i) candidates->push_back(keys[i].expert);
}

}  // namespace strata::expertstore
