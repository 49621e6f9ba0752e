// Against the definition in prompt_routing.h, computed the slow way in double precision.
#include "services/compute/models/prompt_routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace strata::compute {
namespace {

struct Layer {
  int experts = 0;
  int k = 0;
  std::vector<float> logits;
  std::vector<int32_t> ids;
  std::vector<float> weights;

  int tokens() const { return static_cast<int>(logits.size()) / experts; }
  double P(int token, int expert) const {
    return std::exp(double{logits[static_cast<size_t>(token * experts + expert)]});
  }
  // The k best of the experts that `may` has, descending.
  std::vector<int32_t> Best(int token, const std::vector<uint8_t>& may) const {
    std::vector<int32_t> all;
    for (int e = 0; e < experts; ++e) {
      if (may[static_cast<size_t>(e)] != 0) all.push_back(e);
    }
    std::stable_sort(all.begin(), all.end(),
                     [&](int32_t a, int32_t b) { return P(token, a) > P(token, b); });
    all.resize(static_cast<size_t>(k));
    return all;
  }
  double Mass(int token, const std::vector<int32_t>& chosen) const {
    double sum = 0;
    for (const int32_t e : chosen) sum += P(token, e);
    return sum;
  }
  std::vector<int32_t> Chosen(int token) const {
    return {ids.begin() + token * k, ids.begin() + (token + 1) * k};
  }
};

Layer RandomLayer(std::mt19937& random, int tokens, int experts, int k) {
  Layer layer{experts, k, {}, {}, {}};
  std::normal_distribution<float> normal(0, 2);
  for (int i = 0; i < tokens * experts; ++i) layer.logits.push_back(normal(random));
  const std::vector<uint8_t> all(static_cast<size_t>(experts), 1);
  for (int t = 0; t < tokens; ++t) {
    const std::vector<int32_t> best = layer.Best(t, all);
    layer.ids.insert(layer.ids.end(), best.begin(), best.end());
    for (const int32_t e : best) {
      layer.weights.push_back(static_cast<float>(layer.P(t, e) / layer.Mass(t, best)));
    }
  }
  return layer;
}

std::vector<uint8_t> RandomSet(std::mt19937& random, int experts, int count) {
  std::vector<uint8_t> set(static_cast<size_t>(experts), 0);
  std::fill_n(set.begin(), count, uint8_t{1});
  std::shuffle(set.begin(), set.end(), random);
  return set;
}

void ExpectChoicesAreBestOf(const Layer& before, const Layer& after,
                            const std::vector<uint8_t>& allowed) {
  for (int t = 0; t < before.tokens(); ++t) {
    const std::vector<int32_t> want = before.Best(t, allowed);
    ASSERT_EQ(after.Chosen(t), want) << "token " << t;
    for (int j = 0; j < before.k; ++j) {
      const double weight = before.P(t, want[static_cast<size_t>(j)]) / before.Mass(t, want);
      EXPECT_NEAR(after.weights[static_cast<size_t>(t * before.k + j)], weight, 1e-6);
    }
  }
}

TEST(RestrictedRouter, ResidentTakesTheBestInMemory) {
  std::mt19937 random(1);
  RestrictedRouter router;
  for (int round = 0; round < 50; ++round) {
    const int k = 1 + static_cast<int>(random() % 6);
    const Layer before = RandomLayer(random, 9, 24, k);
    Layer after = before;
    std::vector<uint8_t> allowed = RandomSet(random, 24, k + static_cast<int>(random() % 12));
    const std::vector<uint8_t> in_memory = allowed;
    RoutingTally tally;
    router.Restrict({PromptRouting::kResident, 0, 1}, k, after.logits, allowed, after.ids,
                    after.weights, &tally);
    EXPECT_EQ(allowed, in_memory) << "RESIDENT must not ask for anything";
    ExpectChoicesAreBestOf(before, after, in_memory);

    uint64_t substituted = 0;
    double kept = 0;
    for (int t = 0; t < 9; ++t) {
      const std::vector<int32_t> full = before.Chosen(t);
      const std::vector<int32_t> now = after.Chosen(t);
      for (const int32_t e : now) substituted += std::count(full.begin(), full.end(), e) == 0;
      kept += before.Mass(t, now) / before.Mass(t, full);
    }
    EXPECT_EQ(tally.choices, 9u * static_cast<unsigned>(k));
    EXPECT_EQ(tally.substituted, substituted);
    EXPECT_EQ(tally.decisions, 9u);
    EXPECT_NEAR(tally.kept_mass, kept, 1e-4);
  }
}

TEST(RestrictedRouter, GuardedKeepsEveryTokenWithinTheBoundAndAsksForFew) {
  std::mt19937 random(2);
  RestrictedRouter router;
  uint64_t asked_tight = 0;
  uint64_t asked_loose = 0;
  for (int round = 0; round < 60; ++round) {
    const int k = 2 + static_cast<int>(random() % 5);
    const Layer before = RandomLayer(random, 7, 32, k);
    const std::vector<uint8_t> in_memory = RandomSet(random, 32, 8);
    for (const float bound : {0.05F, 0.3F}) {
      Layer after = before;
      std::vector<uint8_t> allowed = in_memory;
      RoutingTally tally;
      router.Restrict({PromptRouting::kGuarded, bound, 1}, k, after.logits, allowed, after.ids,
                      after.weights, &tally);
      ExpectChoicesAreBestOf(before, after, allowed);
      uint64_t asked = 0;
      for (size_t e = 0; e < 32; ++e) {
        EXPECT_GE(allowed[e], in_memory[e]);
        if (allowed[e] == in_memory[e]) continue;
        ++asked;
        // Nothing is asked for that no token chose.
        EXPECT_EQ(std::count(before.ids.begin(), before.ids.end(), static_cast<int32_t>(e)) > 0,
                  true);
      }
      (bound < 0.1F ? asked_tight : asked_loose) += asked;
      for (int t = 0; t < 7; ++t) {
        const double full = before.Mass(t, before.Chosen(t));
        EXPECT_LE(1 - before.Mass(t, after.Chosen(t)) / full, bound + 1e-5);
      }
    }
  }
  EXPECT_LT(asked_loose, asked_tight);
}

// One token: the missing experts that join are its best ones, and one less would break the bound.
TEST(RestrictedRouter, GuardedAsksForTheBestMissingExpertsFirst) {
  Layer layer{6, 3, {}, {0, 1, 2}, {}};
  for (const double p : {0.4, 0.3, 0.2, 0.06, 0.03, 0.01}) {
    layer.logits.push_back(static_cast<float>(std::log(p)));
  }
  layer.weights = {0.4F / 0.9F, 0.3F / 0.9F, 0.2F / 0.9F};
  RestrictedRouter router;
  RoutingTally tally;
  // In memory: 3, 4, 5 with mass .10 of .90. With 0: .49, with 1: .76 (loss .156), with 2: .90.
  for (const auto& [bound, want] : std::vector<std::pair<float, std::vector<uint8_t>>>{
           {0.5F, {1, 0, 0, 1, 1, 1}}, {0.16F, {1, 1, 0, 1, 1, 1}}, {0.15F, {1, 1, 1, 1, 1, 1}}}) {
    Layer after = layer;
    std::vector<uint8_t> allowed = {0, 0, 0, 1, 1, 1};
    router.Restrict({PromptRouting::kGuarded, bound, 1}, 3, after.logits, allowed, after.ids,
                    after.weights, &tally);
    EXPECT_EQ(allowed, want) << bound;
  }
}

// The greedy choice under a budget, done the slow way: everything weighed anew for every pick.
TEST(RestrictedRouter, GuardedSpendsItsBudgetOnWhatSavesMost) {
  std::mt19937 random(5);
  RestrictedRouter router;
  for (int round = 0; round < 40; ++round) {
    const int k = 2 + static_cast<int>(random() % 4);
    const Layer before = RandomLayer(random, 12, 32, k);
    const std::vector<uint8_t> in_memory = RandomSet(random, 32, 8);
    int missing = 0;
    for (int e = 0; e < 32; ++e) {
      missing += in_memory[static_cast<size_t>(e)] == 0 &&
                 std::count(before.ids.begin(), before.ids.end(), e) > 0;
    }
    for (const float budget : {0.01F, 0.1F, 0.3F}) {
      std::vector<uint8_t> want = in_memory;
      for (int left = std::max(1, static_cast<int>(budget * static_cast<float>(missing))); left > 0;
           --left) {
        std::vector<double> gain(32, 0.0);
        for (int t = 0; t < before.tokens(); ++t) {
          const std::vector<int32_t> now = before.Best(t, want);
          const double full = before.Mass(t, before.Chosen(t));
          if (1 - before.Mass(t, now) / full <= 0.1) continue;
          for (const int32_t e : before.Chosen(t)) {
            if (want[static_cast<size_t>(e)] != 0) continue;
            gain[static_cast<size_t>(e)] += (before.P(t, e) - before.P(t, now.back())) / full;
          }
        }
        const auto best = std::max_element(gain.begin(), gain.end());
        if (*best == 0) break;
        want[static_cast<size_t>(best - gain.begin())] = 1;
      }
      Layer after = before;
      std::vector<uint8_t> allowed = in_memory;
      RoutingTally tally;
      router.Restrict({PromptRouting::kGuarded, 0.1F, budget}, k, after.logits, allowed, after.ids,
                      after.weights, &tally);
      EXPECT_EQ(allowed, want) << "budget " << budget;
      ExpectChoicesAreBestOf(before, after, want);
    }
  }
}

TEST(RestrictedRouter, ChoicesInMemoryKeepTheirBits) {
  std::mt19937 random(3);
  const Layer before = RandomLayer(random, 5, 16, 4);
  Layer after = before;
  after.weights[0] += 0.25F;  // not what the definition gives: must be left alone
  const std::vector<float> weights = after.weights;
  std::vector<uint8_t> allowed(16, 1);
  RoutingTally tally;
  RestrictedRouter().Restrict({PromptRouting::kResident, 0, 1}, 4, after.logits, allowed, after.ids,
                              after.weights, &tally);
  EXPECT_EQ(after.ids, before.ids);
  EXPECT_EQ(after.weights, weights);
  EXPECT_EQ(tally.substituted, 0u);
  EXPECT_EQ(tally.kept_mass, 5.0);
}

TEST(RestrictedRouter, AColdLayerGetsTheExpertsWithTheMostMass) {
  std::mt19937 random(4);
  const Layer before = RandomLayer(random, 20, 16, 4);
  std::vector<double> mass(16);
  for (int t = 0; t < 20; ++t) {
    double sum = 0;
    for (int e = 0; e < 16; ++e) sum += before.P(t, e);
    for (int e = 0; e < 16; ++e) mass[static_cast<size_t>(e)] += before.P(t, e) / sum;
  }
  Layer after = before;
  std::vector<uint8_t> allowed(16, 0);
  allowed[5] = 1;
  mass[5] = -1;
  RoutingTally tally;
  RestrictedRouter().Restrict({PromptRouting::kResident, 0, 1}, 4, after.logits, allowed, after.ids,
                              after.weights, &tally);
  std::vector<uint8_t> want(16, 0);
  want[5] = 1;
  for (int i = 0; i < 3; ++i) {
    const auto best = std::max_element(mass.begin(), mass.end());
    want[static_cast<size_t>(best - mass.begin())] = 1;
    *best = -1;
  }
  EXPECT_EQ(allowed, want);
  ExpectChoicesAreBestOf(before, after, want);
}

TEST(RestrictedRouter, LogitsThatAreNoNumbersStillGiveDifferentExperts) {
  std::vector<float> logits(8, NAN);
  std::vector<int32_t> ids = {0, 1, 2};
  std::vector<float> weights = {0, 0, 0};
  std::vector<uint8_t> allowed = {0, 0, 0, 1, 1, 0, 1, 1};
  RoutingTally tally;
  RestrictedRouter().Restrict({PromptRouting::kGuarded, 0.15F, 1}, 3, logits, allowed, ids, weights,
                              &tally);
  EXPECT_EQ(ids, (std::vector<int32_t>{3, 4, 6}));
}

}  // namespace
}  // namespace strata::compute
