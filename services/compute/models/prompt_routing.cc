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

void RestrictedRouter::Weigh(std::span<const float> p, std::span<const uint8_t> allowed,
                             size_t used, Loser* loser) {
  ChooseBest(static_cast<int>(used), p, allowed);
  loser->kept = MassOf(best_, p);
  loser->weakest = p[static_cast<size_t>(best_.back())];
}

void RestrictedRouter::Guard(const RoutingRule& rule, size_t used, std::span<const float> logits,
                             std::span<uint8_t> allowed, std::span<const int32_t> ids) {
  const size_t experts = allowed.size();
  const auto row = [&](size_t i) {
    return std::span<const float>(guarded_p_).subspan(i * experts, experts);
  };
  const auto chosen = [&](size_t token) { return ids.subspan(token * used, used); };
  losers_.clear();
  guarded_p_.clear();
  missing_.assign(experts, 0);
  for (size_t t = 0; t * used < ids.size(); ++t) {
    if (AllAllowed(chosen(t), allowed)) continue;
    for (const int32_t e : chosen(t)) missing_[static_cast<size_t>(e)] = 1;
    const std::span<const float> p = Probabilities(logits.subspan(t * experts, experts));
    const float full = MassOf(chosen(t), p);
    if (!(full > 0)) continue;
    for (const float value : p) guarded_p_.push_back(value / full);
    Loser loser{t, 0, 0};
    Weigh(row(losers_.size()), allowed, used, &loser);
    if (1 - loser.kept > rule.bound) {
      losers_.push_back(loser);
    } else {
      guarded_p_.resize(guarded_p_.size() - experts);
    }
  }
  size_t missing = 0;
  for (size_t e = 0; e < experts; ++e) missing += missing_[e] != 0 && allowed[e] == 0 ? 1 : 0;
  auto left = std::max<size_t>(
      1, static_cast<size_t>(static_cast<double>(rule.budget) * static_cast<double>(missing)));

  // mass_[e] = what the losers would gain by e, kept up to date: a pick changes few of them.
  mass_.assign(experts, 0);
  const auto count = [&](size_t i, double sign) {
    const Loser& loser = losers_[i];
    if (1 - loser.kept <= rule.bound) return;
    for (const int32_t id : chosen(loser.token)) {
      const auto e = static_cast<size_t>(id);
      if (allowed[e] == 0) mass_[e] += sign * (row(i)[e] - loser.weakest);
    }
  };
  for (size_t i = 0; i < losers_.size(); ++i) count(i, 1);
  for (; left > 0; --left) {
    // Sums of rounded numbers: what is left of a gain that went away is no gain.
    constexpr double kNothing = 1e-6;
    const auto best =
        static_cast<size_t>(std::max_element(mass_.begin(), mass_.end()) - mass_.begin());
    if (mass_[best] < kNothing) return;
    for (size_t i = 0; i < losers_.size(); ++i) {
      if (row(i)[best] > losers_[i].weakest) count(i, -1);
    }
    mass_[best] = 0;
    allowed[best] = 1;
    for (size_t i = 0; i < losers_.size(); ++i) {
      if (!(row(i)[best] > losers_[i].weakest)) continue;
      Weigh(row(i), allowed, used, &losers_[i]);
      count(i, 1);
    }
  }
}

void RestrictedRouter::Restrict(const RoutingRule& rule, int k, std::span<const float> logits,
                                std::span<uint8_t> allowed, std::span<int32_t> ids,
                                std::span<float> weights, RoutingTally* tally) {
  const size_t experts = allowed.size();
  const size_t tokens = logits.size() / experts;
  const auto used = static_cast<size_t>(k);
  FillUp(k, logits, allowed);
  if (rule.mode == PromptRouting::kGuarded) Guard(rule, used, logits, allowed, ids);
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
