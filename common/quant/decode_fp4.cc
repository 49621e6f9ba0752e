#include "common/quant/decode_block.h"
#include "common/quant/float16.h"
#include "common/quant/values4.h"

namespace strata::quant {

void DecodeBlock(const BlockMXFP4& block, float* out) {
  const float half_scale = E8m0ToHalfScale(block.e);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(kE2m1Doubled[block.qs[j] & 15]) * half_scale;
    out[j + 16] = static_cast<float>(kE2m1Doubled[block.qs[j] >> 4]) * half_scale;
  }
}

void DecodeBlock(const BlockNVFP4& block, float* out) {
  for (int g = 0; g < 4; ++g) {
    const float half_scale = Ue4m3ToHalfScale(block.d[g]);
    for (int j = 0; j < 8; ++j) {
      const uint8_t q = block.qs[g * 8 + j];
      out[g * 16 + j] = static_cast<float>(kE2m1Doubled[q & 15]) * half_scale;
      out[g * 16 + j + 8] = static_cast<float>(kE2m1Doubled[q >> 4]) * half_scale;
    }
  }
}

}  // namespace strata::quant
