// The packed 6-bit scales of the K-quants: twelve bytes hold eight (scale, minimum) pairs in Q4_K
// and Q5_K, or sixteen scales in Q3_K. blocks.h gives the bit layout.
#pragma once

#include <cstdint>

namespace strata::quant {

struct KScales {
  uint8_t scale[8];  // 0..63
  uint8_t min[8];    // 0..63
};

constexpr KScales UnpackKScales(const uint8_t* packed) {
  KScales out{};
  for (int g = 0; g < 4; ++g) {
    out.scale[g] = packed[g] & 63;
    out.min[g] = packed[g + 4] & 63;
    out.scale[g + 4] = (packed[g + 8] & 15) | packed[g] >> 6 << 4;
    out.min[g + 4] = packed[g + 8] >> 4 | packed[g + 4] >> 6 << 4;
  }
  return out;
}

constexpr void PackKScales(const KScales& scales, uint8_t* packed) {
  for (int g = 0; g < 4; ++g) {
    packed[g] = scales.scale[g] | scales.scale[g + 4] >> 4 << 6;
    packed[g + 4] = scales.min[g] | scales.min[g + 4] >> 4 << 6;
    packed[g + 8] = (scales.scale[g + 4] & 15) | (scales.min[g + 4] & 15) << 4;
  }
}

// Scale g of a Q3_K block, still with its offset: the factor is the result - 32.
constexpr int Q3KScale(const uint8_t* packed, int g) {
  const int low = packed[g % 8] >> (g < 8 ? 0 : 4) & 15;
  const int high = packed[8 + g % 4] >> 2 * (g / 4) & 3;
  return low | high << 4;
}

// Sixteen scales with offset (0..63).
constexpr void PackQ3KScales(const uint8_t* scales, uint8_t* packed) {
  for (int i = 0; i < 8; ++i) packed[i] = (scales[i] & 15) | (scales[i + 8] & 15) << 4;
  for (int i = 0; i < 4; ++i) {
    packed[8 + i] = scales[i] >> 4 | scales[i + 4] >> 4 << 2 | scales[i + 8] >> 4 << 4 |
                    scales[i + 12] >> 4 << 6;
  }
}

}  // namespace strata::quant
