// The sets of values that the codes of a quantised type can stand for, before the scale.
//
// A grid offers: kCodes, their number; Code(r), the index of the value nearest to r; Value(code);
// kExtreme, the magnitude of its most negative value (no positive one is larger); kReach, how far
// around kExtreme it pays to look for a better image of the largest weight.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "common/quant/values4.h"

namespace strata::quant {

// Nearest integer, ties to even, for |x| < 2^22. Adding 1.5 * 2^23 leaves no fraction bits.
inline int RoundToInt(float x) {
  return std::bit_cast<int32_t>(x + 0x1.8p23F) - std::bit_cast<int32_t>(0x1.8p23F);
}

// The integers kLow..kHigh.
template <int kLow, int kHigh>
struct LinearGrid {
  static constexpr int kCodes = kHigh - kLow + 1;
  static constexpr float kExtreme = -kLow;
  static constexpr float kReach = 1.25F;
  static int Code(float r) {
    // Clamped first: r may be far outside the range of RoundToInt.
    return RoundToInt(std::clamp(r, static_cast<float>(kLow), static_cast<float>(kHigh))) - kLow;
  }
  static float Value(int code) { return static_cast<float>(code + kLow); }
};

// The nearest code for each half-open interval of length 1/2 from -127 to 113. The midpoints
// between neighbouring values are multiples of 1/2, so no interval holds one inside.
inline constexpr auto kIq4Nearest = [] {
  std::array<uint8_t, 2 * (113 + 127)> nearest{};
  int code = 0;
  for (size_t i = 0; i < nearest.size(); ++i) {
    const int twice = static_cast<int>(i) - 2 * 127;  // twice the lower end
    while (code < 15 && twice >= kIq4NlValues[code] + kIq4NlValues[code + 1]) ++code;
    nearest[i] = static_cast<uint8_t>(code);
  }
  return nearest;
}();

// The sixteen values of IQ4_NL and IQ4_XS.
struct Iq4Grid {
  static constexpr int kCodes = 16;
  static constexpr float kExtreme = 127;
  static constexpr float kReach = 20;
  static int Code(float r) {
    // Rounding 2 r - 1/2 to the nearest integer is rounding 2 r down; on a boundary either will do.
    return kIq4Nearest[RoundToInt(2 * std::clamp(r, -127.0F, 112.9F) - 0.5F) + 2 * 127];
  }
  static float Value(int code) { return static_cast<float>(kIq4NlValues[code]); }
};

}  // namespace strata::quant
