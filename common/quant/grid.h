// The sets of values that the codes of a quantised type can stand for, before the scale.
//
// A grid offers: kCodes, their number; Code(r), the index of the value nearest to r; Value(code);
// kExtreme, the magnitude of its most negative value (no positive one is larger); kReach, how far
// around kExtreme it pays to look for a better image of the largest weight.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
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

// The sixteen values of IQ4_NL and IQ4_XS.
struct Iq4Grid {
  static constexpr int kCodes = 16;
  static constexpr float kExtreme = 127;
  static constexpr float kReach = 20;
  static int Code(float r) {
    int code = 0;  // the number of midpoints below r, by bisection
    for (int step = 8; step > 0; step /= 2) {
      const int low = kIq4NlValues[code + step - 1];
      const int high = kIq4NlValues[code + step];
      if (r > static_cast<float>(low + high) * 0.5F) code += step;
    }
    return code;
  }
  static float Value(int code) { return static_cast<float>(kIq4NlValues[code]); }
};

}  // namespace strata::quant
