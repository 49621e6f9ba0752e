// The conversions against definitions in double precision.
#include "common/quant/float16.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace strata::quant {
namespace {

// The value of a finite half by its definition.
double HalfValue(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Float16, EveryHalfIsExactAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    const uint32_t magnitude = half & 0x7fff;
    if (magnitude > 0x7c00) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value)))) << bits;
      continue;
    }
    if (magnitude == 0x7c00) {
      EXPECT_TRUE(std::isinf(value)) << bits;
    } else {
      EXPECT_EQ(value, HalfValue(half)) << bits;
    }
    EXPECT_EQ(FloatToHalf(value), half);
    EXPECT_EQ(std::signbit(value), bits >= 0x8000);
  }
}

// Between two neighbours the nearer one wins; at the middle the even one.
TEST(Float16, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const auto middle = static_cast<float>((HalfValue(low) + HalfValue(high)) / 2);
    EXPECT_EQ(FloatToHalf(middle), (low & 1) == 0 ? low : high) << bits;
    EXPECT_EQ(FloatToHalf(std::nextafter(middle, 0.0F)), low) << bits;
    EXPECT_EQ(FloatToHalf(std::nextafter(middle, 1e9F)), high) << bits;
    EXPECT_EQ(FloatToHalf(-middle), 0x8000 | ((low & 1) == 0 ? low : high)) << bits;
  }
  EXPECT_EQ(FloatToHalf(65519.996F), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0F), 0x7c00);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(Float16, Bf16RoundsToNearestEven) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    const uint16_t bf16 = FloatToBf16(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(bf16)));
      continue;
    }
    const auto down = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
    // Distances in units of the last place; infinity counts as the next number, as in IEEE 754.
    const uint32_t rest = std::bit_cast<uint32_t>(value) & 0xffff;
    const bool up = rest > 0x8000 || (rest == 0x8000 && (down & 1) != 0);
    EXPECT_EQ(bf16, down + (up ? 1 : 0)) << value;
  }
  EXPECT_EQ(FloatToBf16(1.0F), 0x3f80);
  EXPECT_EQ(Bf16ToFloat(0xff80), -std::numeric_limits<float>::infinity());
}

TEST(Float16, BlockScales) {
  for (int e = 0; e < 256; ++e) {
    EXPECT_EQ(E8m0ToHalfScale(static_cast<uint8_t>(e)), std::ldexp(1.0, e - 128)) << e;
  }
  for (int bits = 0; bits < 127; ++bits) {
    const int exponent = bits >> 3;
    const int fraction = bits & 7;
    const double value =
        exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
    EXPECT_EQ(Ue4m3ToHalfScale(static_cast<uint8_t>(bits)), value / 2) << bits;
  }
  EXPECT_EQ(Ue4m3ToHalfScale(127), 0);
}

}  // namespace
}  // namespace strata::quant
