#include "services/compute/engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

namespace strata::compute {
namespace {

// Shares of each token over many positions.
std::map<int, double> Shares(const v1::SamplingParams& params, const std::vector<float>& logits,
                             int draws = 20'000) {
  std::map<int, double> shares;
  Sampler sampler(params, static_cast<int>(logits.size()));
  for (int i = 0; i < draws; ++i) {
    std::vector<float> copy = logits;
    shares[sampler.Sample(copy, static_cast<uint64_t>(i), {})] += 1.0 / draws;
  }
  return shares;
}

std::vector<float> Logs(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)) + 3);
  return logits;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdAmongEquals) {
  Sampler sampler({}, 4);
  std::vector<float> logits = {1, 5, 5, 2};
  EXPECT_EQ(sampler.Sample(logits, 0, {}), 1);
}

TEST(Sampler, DrawsFollowTheDistribution) {
  v1::SamplingParams params;
  params.set_temperature(1);
  const auto shares = Shares(params, Logs({0.5, 0.3, 0.15, 0.05}));
  EXPECT_NEAR(shares.at(0), 0.5, 0.015);
  EXPECT_NEAR(shares.at(1), 0.3, 0.015);
  EXPECT_NEAR(shares.at(2), 0.15, 0.01);
  EXPECT_NEAR(shares.at(3), 0.05, 0.01);
}

TEST(Sampler, TemperatureSharpens) {
  v1::SamplingParams params;
  params.set_temperature(0.5);  // squares the odds: .5^2 : .3^2 : .2^2 = 25 : 9 : 4
  const auto shares = Shares(params, Logs({0.5, 0.3, 0.2}));
  EXPECT_NEAR(shares.at(0), 25.0 / 38, 0.015);
  EXPECT_NEAR(shares.at(2), 4.0 / 38, 0.01);
}

TEST(Sampler, CutsKeepWhatTheyPromise) {
  const std::vector<float> logits = Logs({0.05, 0.4, 0.3, 0.15, 0.1});
  v1::SamplingParams params;
  params.set_temperature(1);

  params.set_top_k(2);
  EXPECT_EQ(Shares(params, logits).size(), 2u);
  params.set_top_k(0);

  params.set_top_p(0.75);  // .4 + .3 = .7 is not enough: a third one
  auto shares = Shares(params, logits);
  EXPECT_EQ(shares.size(), 3u);
  EXPECT_NEAR(shares.at(1), 0.4 / 0.85, 0.015);
  params.set_top_p(0);
  EXPECT_EQ(Shares(params, logits).size(), 1u) << "at least one token always remains";
  params.clear_top_p();

  params.set_min_p(0.3);  // floor .12
  EXPECT_EQ(Shares(params, logits).size(), 3u);
  params.clear_min_p();

  params.set_typical_p(0.2);
  EXPECT_EQ(Shares(params, logits).size(), 1u);
}

// The nucleus search sorts only a part of the vocabulary; compare with sorting all of it.
TEST(Sampler, TopPOnALargeVocabularyEqualsAFullSort) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(5000);
  for (float& l : logits) l = normal(random);
  double total = 0;
  for (const float l : logits) total += std::exp(l);
  std::vector<float> sorted = logits;
  std::sort(sorted.rbegin(), sorted.rend());
  double mass = 0;
  size_t kept = 0;
  while (mass < 0.6) mass += std::exp(sorted[kept++]) / total;
  v1::SamplingParams params;
  params.set_temperature(1);
  params.set_top_p(0.6f);
  for (const auto& [id, share] : Shares(params, logits, 3000)) {
    EXPECT_GE(logits[static_cast<size_t>(id)], sorted[kept - 1]);
  }
}

TEST(Sampler, NoiseDependsOnSeedAndPositionOnly) {
  v1::SamplingParams params;
  params.set_temperature(1);
  params.set_seed(11);
  const std::vector<float> logits = Logs({0.25, 0.25, 0.25, 0.25});
  std::vector<int> once;
  Sampler first(params, 4);
  for (uint64_t p = 0; p < 64; ++p) {
    std::vector<float> copy = logits;
    once.push_back(first.Sample(copy, p, {}));
  }
  Sampler resumed(params, 4);  // starts in the middle
  for (uint64_t p = 32; p < 64; ++p) {
    std::vector<float> copy = logits;
    EXPECT_EQ(resumed.Sample(copy, p, {}), once[p]);
  }
  params.set_seed(12);
  Sampler other(params, 4);
  int same = 0;
  for (uint64_t p = 0; p < 64; ++p) {
    std::vector<float> copy = logits;
    same += other.Sample(copy, p, {}) == once[p];
  }
  EXPECT_LT(same, 40);
}

TEST(Sampler, PenaltiesAndBias) {
  v1::SamplingParams params;
  params.set_repetition_penalty(2);
  Sampler repetition(params, 3);
  repetition.Observe(0, /*generated=*/false);
  std::vector<float> logits = {3, 2, -1};
  EXPECT_EQ(repetition.Sample(logits, 0, {}), 1);
  EXPECT_FLOAT_EQ(logits[0], 1.5f);

  v1::SamplingParams additive;
  additive.set_presence_penalty(0.5);
  additive.set_frequency_penalty(0.25);
  Sampler frequency(additive, 3);
  frequency.Observe(2, /*generated=*/false);  // the prompt does not count
  frequency.Observe(1, /*generated=*/true);
  frequency.Observe(1, /*generated=*/true);
  logits = {1, 2, 3};
  frequency.Sample(logits, 0, {});
  EXPECT_FLOAT_EQ(logits[1], 2 - 0.5f - 2 * 0.25f);
  EXPECT_FLOAT_EQ(logits[2], 3);

  v1::SamplingParams bias;
  (*bias.mutable_logit_bias())[2] = 100;
  logits = {1, 2, 3};
  logits[2] = -50;
  EXPECT_EQ(Sampler(bias, 3).Sample(logits, 0, {}), 2);
}

TEST(Sampler, PenaltyWindowForgets) {
  v1::SamplingParams params;
  params.set_repetition_penalty(2);
  params.set_penalty_last_n(2);
  Sampler sampler(params, 4);
  for (const uint32_t t : {0u, 1u, 2u}) sampler.Observe(t, true);
  std::vector<float> logits = {4, 4, 4, 4};
  sampler.Sample(logits, 0, {});
  EXPECT_EQ(logits, (std::vector<float>{4, 2, 2, 4}));
}

TEST(Sampler, ForbiddenTokensNeverCome) {
  std::vector<float> logits = {1, 9, 2};
  const uint32_t forbidden[] = {1};
  EXPECT_EQ(Sampler({}, 3).Sample(logits, 0, forbidden), 2);
}

TEST(Sampler, LogProbabilitiesSumToOne) {
  const std::vector<float> logits = Logs({0.5, 0.3, 0.2});
  std::vector<TokenProbability> top;
  EXPECT_NEAR(LogProbability(logits, 1, 2, &top).logprob, std::log(0.3), 1e-5);
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(top[0].id, 0);
  EXPECT_NEAR(top[1].logprob, std::log(0.3), 1e-5);
}

TEST(Sampler, BadValuesAreNamed) {
  const auto message = [](const v1::SamplingParams& p) {
    return std::string(ValidateSampling(p, 10).message());
  };
  v1::SamplingParams p;
  p.set_temperature(std::numeric_limits<float>::quiet_NaN());
  EXPECT_NE(message(p).find("temperature"), std::string::npos);
  p = {};
  p.set_top_p(1.5);
  EXPECT_NE(message(p).find("top_p = 1.5"), std::string::npos);
  p = {};
  (*p.mutable_logit_bias())[10] = 1;
  EXPECT_NE(message(p).find("token 10"), std::string::npos);
  EXPECT_TRUE(ValidateSampling({}, 10).ok());
}

}  // namespace
}  // namespace strata::compute
