#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <list>
#include <random>
#include <set>

#include "services/expertstore/policy/decayed_frequency.h"
#include "services/expertstore/policy/profile.h"

namespace strata::expertstore {
namespace {

using ::testing::HasSubstr;

// Against the definition: every use halves for every half_life uses after it.
TEST(DecayedFrequency, ValuesMatchTheirDefinition) {
  constexpr double kHalfLife = 50;
  constexpr uint32_t kExperts = 10;
  DecayedFrequency policy(kExperts, kHalfLife);
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
    const double weight = random() % 2 == 0 ? 1.0 : 1.0 / 32;
    policy.Use(expert, weight);
    uses.push_back({expert, weight, time});
    time += weight;
  }
  std::vector<double> want(kExperts);
  for (const Use& use : uses) {
    want[use.expert] += use.weight * std::exp2(-(time - use.time) / kHalfLife);
  }
  for (uint32_t e = 0; e < kExperts; ++e) EXPECT_NEAR(policy.Value(e), want[e], 1e-6 * want[e]);
}

TEST(DecayedFrequency, RanksTheLeastValuableFirst) {
  DecayedFrequency policy(5, 1000);
  for (int i = 0; i < 8; ++i) policy.Use(0, 1);
  for (int i = 0; i < 2; ++i) policy.Use(1, 1);
  for (int i = 0; i < 40; ++i) policy.Use(2, 1);
  policy.Seed(4, 4);
  std::vector<uint32_t> candidates = {0, 1, 2, 3, 4};
  policy.Rank(4, &candidates);
  EXPECT_EQ(candidates, (std::vector<uint32_t>{3, 1, 4, 0}));
  candidates = {2};
  policy.Rank(9, &candidates);
  EXPECT_EQ(candidates, (std::vector<uint32_t>{2}));
}

// Share of hits of a cache of `room` experts over a trace. `victim` picks from the residents.
double HitRate(const std::vector<uint32_t>& trace, size_t room,
               const std::function<uint32_t(std::vector<uint32_t>)>& victim,
               const std::function<void(uint32_t)>& use) {
  std::set<uint32_t> resident;
  size_t hits = 0;
  for (const uint32_t expert : trace) {
    use(expert);
    if (resident.contains(expert)) {
      ++hits;
      continue;
    }
    if (resident.size() == room) {
      resident.erase(victim({resident.begin(), resident.end()}));
    }
    resident.insert(expert);
  }
  return static_cast<double>(hits) / static_cast<double>(trace.size());
}

double DecayedRate(const std::vector<uint32_t>& trace, uint32_t experts, size_t room) {
  DecayedFrequency policy(experts, experts / 2.0);
  return HitRate(
      trace, room,
      [&](std::vector<uint32_t> residents) {
        policy.Rank(1, &residents);
        return residents[0];
      },
      [&](uint32_t expert) { policy.Use(expert, 1); });
}

double LruRate(const std::vector<uint32_t>& trace, uint32_t experts, size_t room) {
  std::vector<size_t> last(experts);
  size_t time = 0;
  return HitRate(
      trace, room,
      [&](const std::vector<uint32_t>& residents) {
        return *std::min_element(residents.begin(), residents.end(),
                                 [&](uint32_t a, uint32_t b) { return last[a] < last[b]; });
      },
      [&](uint32_t expert) { last[expert] = ++time; });
}

// One token's experts in turn, again and again, in room for half of them: the least recently used
// one is always the next to be used.
TEST(DecayedFrequency, HasNoCliffWhereLeastRecentlyUsedHitsNothing) {
  constexpr uint32_t kExperts = 512;
  std::vector<uint32_t> trace;
  for (int token = 0; token < 200; ++token) {
    for (uint32_t i = 0; i < 32; ++i) trace.push_back(i * 16);
  }
  EXPECT_EQ(LruRate(trace, kExperts, 16), 0.0);
  // Random replacement hits h = exp(-(1 - h) 32 / 16), i.e. 0.2.
  EXPECT_GT(DecayedRate(trace, kExperts, 16), 0.15);
}

// Skewed use with a change of topic in the middle: at least as good as least recently used.
TEST(DecayedFrequency, KeepsUpWithLeastRecentlyUsedOnSkewedTraces) {
  constexpr uint32_t kExperts = 256;
  std::mt19937 random(8);
  std::vector<double> weights(kExperts);
  for (uint32_t i = 0; i < kExperts; ++i) weights[i] = std::pow(i + 1, -0.75);
  std::vector<uint32_t> trace;
  for (int topic = 0; topic < 2; ++topic) {
    std::shuffle(weights.begin(), weights.end(), random);
    std::discrete_distribution<uint32_t> draw(weights.begin(), weights.end());
    for (int i = 0; i < 10000; ++i) trace.push_back(draw(random));
  }
  EXPECT_GT(DecayedRate(trace, kExperts, 64), LruRate(trace, kExperts, 64));
}

class ProfileTest : public testing::Test {
 protected:
  ProfileTest()
      : folder_(testing::TempDir() + "profile_" + std::to_string(getpid())),
        path_(folder_ + "/experts.profile") {}
  ~ProfileTest() override {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  const shm::Fingerprint model_ = {0xab, 0xcd};
  const std::string folder_;
  const std::string path_;
};

TEST_F(ProfileTest, ComesBackAsSaved) {
  EXPECT_EQ(LoadProfile(path_, model_).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(SaveProfile(path_, model_, {{1, 2, 0.5}, {47, 511, 1234.5}}).ok());
  ASSERT_TRUE(SaveProfile(path_, model_, {{1, 2, 0.25}, {47, 511, 1234.5}, {0, 0, 0}}).ok());
  const auto entries = LoadProfile(path_, model_);
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 3u);
  EXPECT_EQ((*entries)[0].value, 0.25);
  EXPECT_EQ((*entries)[1].layer, 47u);
  EXPECT_EQ((*entries)[1].index, 511u);
  EXPECT_EQ((*entries)[1].value, 1234.5);
}

TEST_F(ProfileTest, IsNotUsedForAnotherModel) {
  ASSERT_TRUE(SaveProfile(path_, model_, {{1, 2, 0.5}}).ok());
  EXPECT_EQ(LoadProfile(path_, {1}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ProfileTest, DamagedLinesAreNamed) {
  for (const std::string bad :
       {"x", "1 2", "1 2 nan", "1 2 -1", "1 2 3 4", "-1 2 3x", "1 2 1e999"}) {
    ASSERT_TRUE(SaveProfile(path_, model_, {{1, 2, 0.5}}).ok());
    std::ofstream(path_, std::ios::app) << bad << "\n";
    const auto entries = LoadProfile(path_, model_);
    EXPECT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(entries.status().message()), HasSubstr("line 3")) << bad;
  }
}

TEST_F(ProfileTest, AFullOrForbiddenDiskIsAnErrorAndKeepsTheOldFile) {
  ASSERT_TRUE(SaveProfile(path_, model_, {{1, 2, 0.5}}).ok());
  EXPECT_FALSE(SaveProfile("/proc/nothing/here", model_, {}).ok());
  EXPECT_FALSE(SaveProfile("/dev/full/x", model_, {}).ok());
  EXPECT_TRUE(LoadProfile(path_, model_).ok());
}

}  // namespace
}  // namespace strata::expertstore
