#include "services/compute/models/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace strata::compute {
namespace {

TEST(Rope, PlainFrequenciesArePowersOfTheBase) {
  const RopeParameters rope{.rotary = 8, .base = 10000};
  const std::vector<float> f = InverseFrequencies(rope);
  ASSERT_EQ(f.size(), 4u);
  EXPECT_FLOAT_EQ(f[0], 1);
  EXPECT_FLOAT_EQ(f[1], 0.1f);
  EXPECT_FLOAT_EQ(f[3], 0.001f);
  EXPECT_FLOAT_EQ(RopeMagnitude(rope), 1);
}

TEST(Rope, LinearScalingDividesAll) {
  const RopeParameters rope{
      .rotary = 4, .base = 100, .scaling = RopeParameters::Scaling::kLinear, .factor = 4};
  EXPECT_FLOAT_EQ(InverseFrequencies(rope)[0], 0.25f);
  EXPECT_FLOAT_EQ(InverseFrequencies(rope)[1], 0.025f);
}

// Short wavelengths are kept, long ones divided by the factor, between them a ramp.
TEST(Rope, YarnKeepsFastAndScalesSlowDimensions) {
  const RopeParameters rope{.rotary = 128,
                            .base = 1e6,
                            .scaling = RopeParameters::Scaling::kYarn,
                            .factor = 4,
                            .original_context = 32768};
  const std::vector<float> f = InverseFrequencies(rope);
  const auto plain = [](size_t i) { return std::pow(1e6, -2.0 * static_cast<double>(i) / 128); };
  EXPECT_NEAR(f[0] / plain(0), 1, 1e-6);
  EXPECT_NEAR(f[10] / plain(10), 1, 1e-6);
  EXPECT_NEAR(f[63] / plain(63), 0.25, 1e-6);
  for (size_t i = 1; i < f.size(); ++i) {
    EXPECT_LE(f[i] / plain(i), f[i - 1] / plain(i - 1) + 1e-6);
  }
  EXPECT_NEAR(RopeMagnitude(rope), 1 + 0.1 * std::log(4.0), 1e-6);
}

}  // namespace
}  // namespace strata::compute
