#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/simulate_routing.h"
#include "cli/simulate_tiers.h"

namespace strata::cli {
namespace {

using Token = std::vector<std::vector<uint32_t>>;

policy::Shape Shape(uint32_t layers, uint32_t experts, uint32_t slots, uint32_t used) {
  policy::Shape shape{{}, std::vector<uint32_t>(layers * experts, 0), {slots}, used};
  for (uint32_t e = 0; e < layers * experts; ++e) shape.layer.push_back(e / experts);
  return shape;
}

// The statistics that the generator was fitted to, from traces of Qwen3-30B with six experts a
// token: overlap with the token before, share of the hottest quarter, hit rate of a cache.
TEST(RoutingGenerator, HasTheStatisticsItWasFittedTo) {
  SimulatedModel model = *FindSimulatedModel("qwen3-30b");
  model.used = 6;
  model.layers = 12;
  RoutingGenerator generator(model, 3);
  std::vector<Token> tokens;
  for (int t = 0; t < 128; ++t) tokens.push_back(generator.Next());
  double overlap = 0, hottest = 0, distinct = 0;
  for (uint32_t layer = 0; layer < 12; ++layer) {
    std::vector<int> counts(128);
    for (size_t t = 0; t < tokens.size(); ++t) {
      ASSERT_EQ(tokens[t][layer].size(), 6u);
      for (const uint32_t e : tokens[t][layer]) {
        ++counts[e];
        if (t == 0) continue;
        const auto& before = tokens[t - 1][layer];
        overlap += std::count(before.begin(), before.end(), e) / (12.0 * 6 * 127);
      }
    }
    std::sort(counts.rbegin(), counts.rend());
    for (int i = 0; i < 32; ++i) hottest += counts[i] / (12.0 * 6 * 128);
    distinct += std::count_if(counts.begin(), counts.end(), [](int c) { return c > 0; }) / 12.0;
  }
  EXPECT_NEAR(overlap, 0.36, 0.05);   // measured .38
  EXPECT_NEAR(hottest, 0.864, 0.05);  // measured .864
  EXPECT_NEAR(distinct, 70, 10);      // measured 63.7
}

TEST(RoutingGenerator, AnotherTextSharesOnlyTheModelsOwnPreferences) {
  SimulatedModel model = *FindSimulatedModel("qwen3-30b");
  model.layers = 6;
  RoutingGenerator generator(model, 5);
  const auto count = [&] {
    std::map<std::pair<uint32_t, uint32_t>, int> counts;
    for (int t = 0; t < 100; ++t) {
      const Token& token = generator.Next();
      for (uint32_t layer = 0; layer < 6; ++layer) {
        for (const uint32_t e : token[layer]) ++counts[{layer, e}];
      }
    }
    return counts;
  };
  const auto hits = [](const auto& hot, const auto& other) {  // share of uses by the hot half
    std::vector<std::pair<int, std::pair<uint32_t, uint32_t>>> order;
    for (const auto& [id, n] : hot) order.push_back({n, id});
    std::sort(order.rbegin(), order.rend());
    int sum = 0;
    for (size_t i = 0; i < order.size() / 3; ++i) {
      const auto it = other.find(order[i].second);
      if (it != other.end()) sum += it->second;
    }
    return sum / (6.0 * 8 * 100);
  };
  const auto first = count();
  const auto same = count();
  generator.ChangeText();
  const auto changed = count();
  EXPECT_GT(hits(first, same), hits(first, changed) + 0.1);
}

std::vector<trace::Use> Uses(const Token& token, uint32_t layer, uint32_t experts) {
  std::vector<trace::Use> uses;
  for (const uint32_t e : token[layer]) uses.push_back({layer * experts + e, 1});
  return uses;
}

TEST(TierSimulation, MoreMemoryHitsMoreAndAllHitsAll) {
  SimulatedModel model = *FindSimulatedModel("qwen3-30b");
  model.layers = 8;
  double last = 0;
  for (const uint32_t slots : {64u, 256u, 512u, 1024u}) {
    RoutingGenerator generator(model, 9);
    const policy::Shape ram = Shape(8, 128, slots, 8);
    auto tiers = TierSimulation::Create(ram, Shape(8, 128, 0, 8), "auto").value();
    tiers.Fill();
    TierCounts sum;
    for (int t = 0; t < 200; ++t) {
      const Token& token = generator.Next();
      for (uint32_t layer = 0; layer < 8; ++layer) {
        const TierCounts counts = tiers.Run(false, Uses(token, layer, 128));
        EXPECT_EQ(counts.all(), 8u);
        sum.ram += counts.ram;
        sum.drive += counts.drive;
      }
    }
    const double rate = static_cast<double>(sum.ram) / static_cast<double>(sum.all());
    EXPECT_GT(rate, last);
    last = rate;
  }
  EXPECT_EQ(last, 1.0);
}

// With a device above, both together hold as much as RAM of both sizes, and the device serves more
// than its share.
TEST(TierSimulation, ADeviceTierHoldsTheHotOnesAndRamTheRest) {
  SimulatedModel model = *FindSimulatedModel("qwen3-30b");
  model.layers = 8;
  const auto run = [&](uint32_t ram_slots, uint32_t device_slots) {
    RoutingGenerator generator(model, 9);
    auto tiers =
        TierSimulation::Create(Shape(8, 128, ram_slots, 8), Shape(8, 128, device_slots, 8), "lru")
            .value();
    tiers.Fill();
    TierCounts sum;
    for (int t = 0; t < 300; ++t) {
      const Token& token = generator.Next();
      for (uint32_t layer = 0; layer < 8; ++layer) {
        const TierCounts counts = tiers.Run(false, Uses(token, layer, 128));
        if (t < 100) continue;
        sum.device += counts.device;
        sum.ram += counts.ram;
        sum.drive += counts.drive;
      }
    }
    return sum;
  };
  const TierCounts alone = run(512, 0);
  const TierCounts both = run(384, 128);
  EXPECT_EQ(alone.device, 0u);
  const auto all = static_cast<double>(alone.all());
  EXPECT_GT(static_cast<double>(both.device) / all, 0.25);  // an eighth of the experts
  EXPECT_NEAR(static_cast<double>(both.drive) / all, static_cast<double>(alone.drive) / all, 0.05);
}

TEST(TokenClock, AddsUpWhatCannotOverlap) {
  // 1 GB/s everywhere, experts of 1 MB (1 ms), 2 ms of dense weights, 0.5 ms until a drive answers.
  SimulatedMachine machine{1e9, 0, 1e9, 0.5e-3};
  TokenClock clock(machine, 1e6, 2e6);
  clock.Layer({0, 4, 0});  // 2 + 4
  clock.Layer({0, 1, 3});  // 2, then max(1, 0.5 + 3), then 3
  clock.EndToken();
  EXPECT_NEAR(clock.seconds_per_token(), 14.5e-3, 1e-9);
  EXPECT_NEAR(clock.stall_per_token(), 2.5e-3, 1e-9);
  EXPECT_NEAR(clock.drive_bytes_per_token(), 3e6, 1e-3);
  EXPECT_NEAR(clock.least_seconds_per_token(), 12e-3, 1e-9);
}

}  // namespace
}  // namespace strata::cli
