// Blocks of 32 weights with one scale, and IQ4_XS.
#include <array>
#include <bit>
#include <cmath>

#include "common/quant/encode_block.h"
#include "common/quant/fit.h"
#include "common/quant/float16.h"
#include "common/quant/superblock.h"
#include "common/quant/values4.h"

namespace strata::quant {
namespace {

void StoreNibbles(const uint8_t* code, uint8_t* qs) {
  for (int j = 0; j < 16; ++j) qs[j] = static_cast<uint8_t>(code[j] | code[j + 16] << 4);
}

// Q4_0 and IQ4_NL: four-bit codes of a grid and a half-precision scale.
template <typename Grid, typename Block>
void EncodeGrid(const float* x, Block* block) {
  block->d = FloatToHalf(FitScale<Grid, 32>(x));
  std::array<uint8_t, 32> code;
  CodeGroup<Grid, 32>(x, HalfToFloat(block->d), code.data());
  StoreNibbles(code.data(), block->qs);
}

// The scale of 32 weights that are whole multiples of one already, at most 127 times, or 0.
float ExactQ8Scale(const float* x, float extreme) {
  for (int k = 127; k > 0; --k) {
    const float d = extreme / static_cast<float>(k);
    bool exact = HalfToFloat(FloatToHalf(d)) == d;
    for (int i = 0; i < 32 && exact; ++i) {
      exact = d * static_cast<float>(RoundToInt(x[i] / d)) == x[i];
    }
    if (exact) return d;
  }
  return 0;
}

// E2M1, doubled: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives.
struct E2m1Grid {
  static int Code(float r) {
    const float magnitude = std::abs(r);
    int code = 0;
    while (code < 7 &&
           magnitude > static_cast<float>(kE2m1Doubled[code] + kE2m1Doubled[code + 1]) * 0.5F) {
      ++code;
    }
    return r < 0 ? code | 8 : code;
  }
  static float Value(int code) { return static_cast<float>(kE2m1Doubled[code]); }
};

}  // namespace

void EncodeBlock(const float* x, BlockQ4_0* block) { EncodeGrid<LinearGrid<-8, 7>>(x, block); }

void EncodeBlock(const float* x, BlockIQ4_NL* block) { EncodeGrid<Iq4Grid>(x, block); }

// With 8 bits the scale that just covers the largest weight is as good as any.
void EncodeBlock(const float* x, BlockQ8_0* block) {
  const float extreme = std::abs(Extreme(x, 32));
  float d = extreme / 127;
  if (d > kTiny) {
    if (const float exact = ExactQ8Scale(x, extreme); exact != 0) d = exact;
  }
  block->d = FloatToHalf(d);
  d = HalfToFloat(block->d);
  for (int i = 0; i < 32; ++i) {
    // The stored d may be rounded down so far (denormals) that the ratio leaves the range.
    const float ratio = d == 0 ? 0 : std::clamp(x[i] / d, -127.0F, 127.0F);
    block->qs[i] = static_cast<int8_t>(RoundToInt(ratio));
  }
}

void EncodeBlock(const float* x, BlockIQ4_XS* block) {
  const auto fit = FitSymmetric<Iq4Grid, 8, 32, -32>(x);
  *block = {};
  block->d = fit.d;
  for (int g = 0; g < 8; ++g) {
    const int scale = fit.scale[g] + 32;
    block->scales_l[g / 2] |= (scale & 15) << g % 2 * 4;
    block->scales_h |= scale >> 4 << 2 * g;
    StoreNibbles(fit.code.data() + 32 * g, block->qs + 16 * g);
  }
}

// Scales are powers of two, so all that make sense can be tried: from the one that cuts the largest
// weight to 3/4 or less, to the one that uses the codes up to 3 only.
void EncodeBlock(const float* x, BlockMXFP4* block) {
  const float extreme = std::abs(Extreme(x, 32));
  *block = {};
  if (extreme < 0x1p-126F) return;
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(extreme) >> 23);  // of 2^(e - 127)
  float best_error = INFINITY;
  for (int e = std::max(exponent - 3, 0); e <= std::max(exponent - 1, 0); ++e) {
    std::array<uint8_t, 32> code;
    const float error =
        CodeGroup<E2m1Grid, 32>(x, E8m0ToHalfScale(static_cast<uint8_t>(e)), code.data());
    if (error < best_error) {
      best_error = error;
      block->e = static_cast<uint8_t>(e);
      StoreNibbles(code.data(), block->qs);
    }
  }
}

}  // namespace strata::quant
