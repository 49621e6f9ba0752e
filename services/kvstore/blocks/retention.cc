#include "services/kvstore/blocks/retention.h"

#include <algorithm>
#include <cmath>

namespace strata::kvstore {
namespace {

constexpr double kStepsPerOctave = 4;
// Relative likelihoods of return at equal age.
constexpr double kSuperseded = 0.01;
constexpr double kOnce = 0.05;
constexpr double kReturned = 1;
// Below this nothing is old: an agent's tool may run for a minute between two turns.
constexpr double kFreshMs = 60'000;

}  // namespace

RetentionKind KindOf(Standing standing, uint64_t tokens, uint64_t bytes, uint8_t older) {
  const double density = static_cast<double>(std::max<uint64_t>(tokens, 1)) /
                         static_cast<double>(std::max<uint64_t>(bytes, 1));
  return {standing, static_cast<int16_t>(std::lround(kStepsPerOctave * std::log2(density))), older};
}

double RetentionValue(const RetentionKind& kind, uint64_t age_ms) {
  const double likelihood = kind.standing == Standing::kReturned ? kReturned
                            : kind.standing == Standing::kOnce   ? kOnce
                                                                 : kSuperseded;
  return std::exp2(kind.density / kStepsPerOctave - kind.older) * likelihood /
         (static_cast<double>(age_ms) + kFreshMs);
}

}  // namespace strata::kvstore
