#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <random>
#include <set>

#include "common/policy/hotness.h"
#include "common/policy/least_frequent.h"
#include "common/policy/least_recent.h"
#include "common/policy/make_policy.h"
#include "common/policy/number_lists.h"

namespace strata::policy {
namespace {

TEST(NumberLists, MatchesStdList) {
  NumberLists lists(40, 3);
  std::list<uint32_t> want[3];
  std::mt19937 random(1);
  for (int step = 0; step < 20000; ++step) {
    const uint32_t number = random() % 40;
    const uint32_t list = random() % 3;
    if (lists.Contains(number)) {
      EXPECT_NE(
          std::find(want[lists.ListOf(number)].begin(), want[lists.ListOf(number)].end(), number),
          want[lists.ListOf(number)].end());
      want[lists.ListOf(number)].remove(number);
      lists.Remove(number);
    } else if (random() % 2 == 0) {
      lists.PushFront(list, number);
      want[list].push_front(number);
    } else {
      lists.PushBack(list, number);
      want[list].push_back(number);
    }
    for (uint32_t l = 0; l < 3; ++l) {
      std::vector<uint32_t> forward, backward;
      for (uint32_t n = lists.front(l); n != NumberLists::kNone; n = lists.TowardsBack(n)) {
        forward.push_back(n);
      }
      for (uint32_t n = lists.back(l); n != NumberLists::kNone; n = lists.TowardsFront(n)) {
        backward.push_back(n);
      }
      ASSERT_TRUE(std::equal(forward.begin(), forward.end(), want[l].begin(), want[l].end()));
      ASSERT_TRUE(std::equal(backward.rbegin(), backward.rend(), want[l].begin(), want[l].end()));
      ASSERT_EQ(lists.size(l), want[l].size());
    }
  }
}

// Against the definition: every use halves for every half_life uses after it.
TEST(LeastRecent, WhatAPromptReadsAheadNeverReplacesWhatDecodingUses) {
  Shape shape;
  for (uint32_t e = 0; e < 6; ++e) {
    shape.layer.push_back(e / 3);
    shape.size_class.push_back(0);
  }
  shape.class_slots = {4};
  const Hotness hotness(6);
  for (const char* name : {"lru", "layer-lru"}) {
    const auto policy = Make(name, shape, hotness).value();
    const auto any = [](uint32_t /*expert*/) { return true; };
    for (const uint32_t e : {0u, 1u}) policy->Insert(e, Phase::kDecode);
    EXPECT_EQ(policy->Victim(3, Phase::kPromptAhead, any), std::nullopt) << name;
    policy->Insert(2, Phase::kPrompt);
    policy->Insert(4, std::nullopt);
    EXPECT_EQ(policy->Victim(3, Phase::kPromptAhead, any), 2u) << name;
    policy->Erase(2);
    EXPECT_EQ(policy->Victim(3, Phase::kPromptAhead, any), 4u) << name;
    policy->Use(4, 1, Phase::kDecode);
    EXPECT_EQ(policy->Victim(3, Phase::kPromptAhead, any), std::nullopt) << name;
    EXPECT_TRUE(policy->Victim(3, Phase::kPrompt, any).has_value()) << name;
  }
}

TEST(Hotness, ValuesMatchTheirDefinition) {
  constexpr double kHalfLife = 50;
  constexpr uint32_t kExperts = 10;
  Hotness hotness(kExperts, kHalfLife);
  std::mt19937 random(2);
  struct Use {
    uint32_t expert;
    double weight;
    double time;
  };
  std::vector<Use> uses;
  double time = 0;
  for (int i = 0; i < 60000; ++i) {  // far enough that the values are scaled down on the way
    const uint32_t expert = random() % kExperts;
    const uint32_t tokens = 1 + random() % 3;
    const bool decode = random() % 2 == 0;
    hotness.Use(expert, tokens, decode ? Phase::kDecode : Phase::kPrompt);
    const double weight = decode ? tokens : tokens / 32.0;
    uses.push_back({expert, weight, time});
    time += weight;
  }
  EXPECT_GT(hotness.epoch(), 0u);
  std::vector<double> want(kExperts);
  for (const Use& use : uses) {
    want[use.expert] += use.weight * std::exp2(-(time - use.time) / kHalfLife);
  }
  for (uint32_t e = 0; e < kExperts; ++e) EXPECT_NEAR(hotness.Value(e), want[e], 1e-6 * want[e]);
}

Shape OneLayer(uint32_t experts, uint32_t slots) {
  return {std::vector<uint32_t>(experts, 0), std::vector<uint32_t>(experts, 0), {slots}, 1};
}

Shape Layers(uint32_t layers, uint32_t experts, uint32_t slots, uint32_t used) {
  Shape shape{{}, std::vector<uint32_t>(layers * experts, 0), {slots}, used};
  for (uint32_t e = 0; e < layers * experts; ++e) shape.layer.push_back(e / experts);
  return shape;
}

// A tier of one size class under a policy.
class Tier {
 public:
  Tier(std::string_view name, const Shape& shape)
      : slots_(shape.class_slots[0]),
        hotness_(shape.experts()),
        policy_(Make(name, shape, hotness_).value()) {}

  // True: it was there. What `keep` names does not go.
  bool Use(uint32_t expert, Phase phase = Phase::kDecode, const std::set<uint32_t>& keep = {}) {
    hotness_.Use(expert, 1, phase);
    policy_->Use(expert, 1, phase);
    if (resident_.contains(expert)) return true;
    if (resident_.size() == slots_) {
      const auto victim =
          policy_->Victim(expert, phase, [&](uint32_t e) { return !keep.contains(e); });
      EXPECT_TRUE(victim.has_value() && resident_.contains(*victim) && !keep.contains(*victim));
      resident_.erase(*victim);
      policy_->Erase(*victim);
    }
    resident_.insert(expert);
    policy_->Insert(expert, phase);
    return false;
  }
  double HitRate(const std::vector<uint32_t>& trace, Phase phase = Phase::kDecode) {
    size_t hits = 0;
    for (const uint32_t expert : trace) hits += Use(expert, phase);
    return static_cast<double>(hits) / static_cast<double>(trace.size());
  }
  const std::set<uint32_t>& resident() const { return resident_; }

 private:
  const size_t slots_;
  Hotness hotness_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::set<uint32_t> resident_;
};

// One after the other, an independent model of least recently used.
double ReferenceLru(const std::vector<uint32_t>& trace, size_t slots) {
  std::list<uint32_t> recent;
  size_t hits = 0;
  for (const uint32_t expert : trace) {
    const auto at = std::find(recent.begin(), recent.end(), expert);
    if (at != recent.end()) {
      ++hits;
      recent.erase(at);
    } else if (recent.size() == slots) {
      recent.pop_back();
    }
    recent.push_front(expert);
  }
  return static_cast<double>(hits) / static_cast<double>(trace.size());
}

// Skewed use with a change of topic in the middle.
std::vector<uint32_t> SkewedTrace(uint32_t experts, int uses) {
  std::mt19937 random(8);
  std::vector<double> weights(experts);
  for (uint32_t i = 0; i < experts; ++i) weights[i] = std::pow(i + 1, -0.75);
  std::vector<uint32_t> trace;
  for (int topic = 0; topic < 2; ++topic) {
    std::shuffle(weights.begin(), weights.end(), random);
    std::discrete_distribution<uint32_t> draw(weights.begin(), weights.end());
    for (int i = 0; i < uses / 2; ++i) trace.push_back(draw(random));
  }
  return trace;
}

TEST(LeastRecent, DecodingIsPlainLru) {
  const std::vector<uint32_t> trace = SkewedTrace(256, 20000);
  EXPECT_EQ(Tier("lru", OneLayer(256, 64)).HitRate(trace), ReferenceLru(trace, 64));
}

TEST(LeastRecent, ByLayerIsLruInEveryLayer) {
  // Uses of three layers in turn; each layer has a third of the slots, after the start.
  const std::vector<uint32_t> one = SkewedTrace(64, 6000);
  std::vector<uint32_t> trace;
  for (const uint32_t e : one) {
    for (uint32_t layer = 0; layer < 3; ++layer) trace.push_back(layer * 64 + (e + layer) % 64);
  }
  EXPECT_NEAR(Tier("layer-lru", Layers(3, 64, 48, 1)).HitRate(trace), ReferenceLru(one, 16), 0.002);
}

// One token's experts in turn, again and again, in room for half of them.
std::vector<uint32_t> Flood() {
  std::vector<uint32_t> trace;
  for (int token = 0; token < 200; ++token) {
    for (uint32_t i = 0; i < 32; ++i) trace.push_back(i * 16);
  }
  return trace;
}

TEST(LeastFrequent, HasNoCliffWhereLeastRecentlyUsedHitsNothing) {
  EXPECT_EQ(Tier("lru", OneLayer(512, 16)).HitRate(Flood()), 0.0);
  // Random replacement hits h = exp(-(1 - h) 32 / 16), i.e. 0.2.
  EXPECT_GT(Tier("lfu", OneLayer(512, 16)).HitRate(Flood()), 0.15);
}

TEST(LeastFrequent, KeepsUpWithLeastRecentlyUsedOnSkewedTraces) {
  const std::vector<uint32_t> trace = SkewedTrace(256, 20000);
  EXPECT_GT(Tier("lfu", OneLayer(256, 64)).HitRate(trace), ReferenceLru(trace, 64));
}

// One restless layer uses six experts a token, seven others always the same one: 13 in all, in room
// for 12. A common list hits nothing, lists per layer serve the seven.
TEST(LeastRecent, ALayerOfItsOwnIsSafeFromTheOthers) {
  std::vector<uint32_t> trace;
  for (uint32_t token = 0; token < 100; ++token) {
    for (uint32_t i = 0; i < 6; ++i) trace.push_back((6 * token + i) % 16);
    for (uint32_t layer = 1; layer < 8; ++layer) trace.push_back(layer * 16);
  }
  EXPECT_EQ(Tier("lru", Layers(8, 16, 12, 1)).HitRate(trace), 0.0);
  EXPECT_NEAR(Tier("layer-lru", Layers(8, 16, 12, 1)).HitRate(trace), 7.0 / 13, 0.02);
}

TEST(Policies, APromptLeavesWhatDecodingUses) {
  for (const char* name : {"lru", "layer-lru", "lfu"}) {
    Tier tier(name, Layers(4, 32, 64, 4));
    for (int token = 0; token < 40; ++token) {
      for (uint32_t layer = 0; layer < 4; ++layer) {
        for (uint32_t i = 0; i < 8; ++i) tier.Use(layer * 32 + i);
      }
    }
    // Three chunks, each over all experts; a chunk's expert is in use while the next is read.
    for (int chunk = 0; chunk < 3; ++chunk) {
      for (uint32_t e = 0; e < 128; ++e) tier.Use(e, Phase::kPrompt, {e > 0 ? e - 1 : 127});
    }
    for (uint32_t layer = 0; layer < 4; ++layer) {
      for (uint32_t i = 0; i < 8; ++i) {
        EXPECT_TRUE(tier.resident().contains(layer * 32 + i))
            << name << " lost " << layer << "." << i;
      }
    }
  }
}

// Chunk after chunk over all experts: a tier of half of them serves about half of every chunk.
TEST(LeastRecent, PromptsHitWhatFits) {
  std::vector<uint32_t> sweep;
  for (int chunk = 0; chunk < 20; ++chunk) {
    for (uint32_t e = 0; e < 128; ++e) sweep.push_back(e);
  }
  EXPECT_EQ(ReferenceLru(sweep, 64), 0.0);
  EXPECT_GT(Tier("lru", Layers(4, 32, 64, 4)).HitRate(sweep, Phase::kPrompt), 0.45);
  EXPECT_GT(Tier("layer-lru", Layers(4, 32, 64, 4)).HitRate(sweep, Phase::kPrompt), 0.45);
}

// Whatever may not go, Victim() finds one of the class that may, or says that there is none.
TEST(Policies, VictimsAreOfTheClassAndMayGo) {
  for (const char* name : {"lru", "layer-lru", "lfu"}) {
    Shape shape = Layers(4, 8, 0, 2);
    shape.class_slots = {6, 5};
    for (uint32_t e = 16; e < 32; ++e) shape.size_class[e] = 1;
    Hotness hotness(32, 20);  // short: the values are scaled down on the way
    const auto policy = Make(name, shape, hotness).value();
    std::set<uint32_t> resident[2];
    std::mt19937 random(5);
    for (int step = 0; step < 30000; ++step) {
      const uint32_t expert = random() % 32;
      const uint32_t c = shape.size_class[expert];
      const Phase phase = random() % 3 == 0 ? Phase::kPrompt : Phase::kDecode;
      hotness.Use(expert, 1, phase);
      policy->Use(expert, 1, phase);
      if (resident[c].contains(expert)) continue;
      if (resident[c].size() == shape.class_slots[c]) {
        std::set<uint32_t> may;
        for (const uint32_t e : resident[c]) {
          if (random() % 3 == 0) may.insert(e);
        }
        const auto victim =
            policy->Victim(expert, phase, [&](uint32_t e) { return may.contains(e); });
        ASSERT_EQ(victim.has_value(), !may.empty());
        if (!victim) continue;
        ASSERT_TRUE(may.contains(*victim));
        resident[c].erase(*victim);
        policy->Erase(*victim);
      }
      resident[c].insert(expert);
      policy->Insert(expert, random() % 4 == 0 ? std::nullopt : std::optional(phase));
    }
  }
}

TEST(Policies, ChosenByCapacity) {
  EXPECT_EQ(Choose("auto", Layers(10, 64, 79, 4)), "layer-lru");
  EXPECT_EQ(Choose("auto", Layers(10, 64, 80, 4)), "lru");
  EXPECT_EQ(Choose("lfu", Layers(10, 64, 80, 4)), "lfu");
  Hotness hotness(4, 1);
  EXPECT_EQ(Make("mru", OneLayer(4, 2), hotness).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace strata::policy
