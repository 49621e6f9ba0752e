#include "services/compute/models/prompt_routing.h"

#include <algorithm>
#include <cmath>

namespace strata::compute {
namespace {

bool AllAllowed(std::span<const int32_t> ids, std::span<const uint8_t> allowed) {
  return std::all_of(ids.begin(), ids.end(),
                     [&](int32_t id) { return allowed[static_cast<size_t>(id)] != 0; });
}

float MassOf(std::span<const int32_t> ids, std::span<const float> p) {
  float sum = 0;
  for (const int32_t id : ids) sum += p[static_cast<size_t>(id)];
  return sum;
}

}  // namespace

std::span<const float> RestrictedRouter::Probabilities(std::span<const float> logits) {
  float max = -INFINITY;
  for (const float logit : logits) max = logit > max ? logit : max;
  p_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const float p = logits[i] == max ? 1.0F : std::exp(logits[i] - max);
    p_[i] = p > 0 ? p : 0;
  }
  return p_;
}

void RestrictedRouter::ChooseBest(int k, std::span<const float> p,
                                  std::span<const uint8_t> allowed) {
  best_.clear();
  const auto size = static_cast<size_t>(k);
  for (size_t e = 0; e < p.size(); ++e) {
    if (allowed[e] == 0) continue;
    if (best_.size() == size && p[e] <= p[static_cast<size_t>(best_.back())]) continue;
    // Behind all that are at least as large: of equals the lower index is first.
    const auto at = std::find_if(best_.begin(), best_.end(), [&](int32_t other) {
      return p[static_cast<size_t>(other)] < p[e];
    });
    best_.insert(at, static_cast<int32_t>(e));
    if (best_.size() > size) best_.pop_back();
  }
}

void RestrictedRouter::FillUp(int k, std::span<const float> logits, std::span<uint8_t> allowed) {
  const size_t experts = allowed.size();
  const auto in_memory = std::count_if(allowed.begin(), allowed.end(), [](auto a) { return a; });
  if (in_memory >= k) return;
  mass_.assign(experts, 0);
  for (size_t at = 0; at < logits.size(); at += experts) {
    const std::span<const float> p = Probabilities(logits.subspan(at, experts));
    double sum = 0;
    for (const float value : p) sum += value;
    for (size_t e = 0; e < experts; ++e) mass_[e] += p[e] / sum;
  }
  for (auto missing = in_memory; missing < k; ++missing) {
    size_t best = experts;
    for (size_t e = 0; e < experts; ++e) {
      if (allowed[e] == 0 && (best == experts || mass_[e] > mass_[best])) best = e;
    }
    allowed[best] = 1;
  }
}

void RestrictedRouter::Guard(float bound, std::span<const float> p, std::span<uint8_t> allowed,
                             std::span<const int32_t> ids) {
  const float full = MassOf(ids, p);
  ChooseBest(static_cast<int>(ids.size()), p, allowed);
  float kept = MassOf(best_, p);
  for (const int32_t id : ids) {  // best first
    if (full - kept <= bound * full) return;
    const auto e = static_cast<size_t>(id);
    if (allowed[e] != 0) continue;
    allowed[e] = 1;
    ChooseBest(static_cast<int>(ids.size()), p, allowed);
    kept = MassOf(best_, p);
  }
}

void RestrictedRouter::Restrict(const RoutingRule& rule, int k, std::span<const float> logits,
                                std::span<uint8_t> allowed, std::span<int32_t> ids,
                                std::span<float> weights, RoutingTally* tally) {
  const size_t experts = allowed.size();
  const size_t tokens = logits.size() / experts;
  const auto used = static_cast<size_t>(k);
  FillUp(k, logits, allowed);
  if (rule.mode == PromptRouting::kGuarded) {
    for (size_t t = 0; t < tokens; ++t) {
      const std::span<const int32_t> chosen = ids.subspan(t * used, used);
      if (AllAllowed(chosen, allowed)) continue;
      Guard(rule.bound, Probabilities(logits.subspan(t * experts, experts)), allowed, chosen);
    }
  }
  tally->choices += tokens * used;
  tally->decisions += tokens;
  for (size_t t = 0; t < tokens; ++t) {
    const std::span<int32_t> chosen = ids.subspan(t * used, used);
    if (AllAllowed(chosen, allowed)) {
      tally->kept_mass += 1;
      continue;
    }
    const std::span<const float> p = Probabilities(logits.subspan(t * experts, experts));
    const float full = MassOf(chosen, p);
    ChooseBest(k, p, allowed);
    const float kept = MassOf(best_, p);
    for (size_t j = 0; j < used; ++j) {
      const int32_t id = best_[j];
      if (std::find(chosen.begin(), chosen.end(), id) == chosen.end()) ++tally->substituted;
      // Nothing of the mass is left if all of it lay on missing experts: then all weigh alike.
      weights[t * used + j] =
          kept > 0 ? p[static_cast<size_t>(id)] / kept : 1.0F / static_cast<float>(k);
    }
    std::copy(best_.begin(), best_.end(), chosen.begin());
    tally->kept_mass += full > 0 ? kept / full : 1;
  }
}

}  // namespace strata::compute
