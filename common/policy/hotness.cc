#include "common/policy/hotness.h"

#include <algorithm>
#include <cmath>

namespace strata::policy {

Hotness::Hotness(uint32_t experts) : Hotness(experts, std::max(64U, experts / 2)) {}

void Hotness::Use(uint32_t expert, uint32_t tokens, Phase phase) {
  const double weight = tokens * (phase == Phase::kDecode ? 1.0 : kPromptWeight);
  values_[expert] += weight * growth_;
  growth_ *= std::exp2(weight / half_life_);
  if (growth_ < 1e200) return;
  for (double& value : values_) value /= growth_;
  growth_ = 1;
  ++epoch_;
}

}  // namespace strata::policy
