#include "common/quant/decode_block.h"
#include "common/quant/float16.h"
#include "common/quant/k_scales.h"

namespace strata::quant {

void DecodeBlock(const BlockQ2_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  for (int i = 0; i < 256; ++i) {
    const uint8_t scales = block.scales[i / 16];
    const int q = block.qs[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
    const float scale = d * static_cast<float>(scales & 15);
    out[i] = scale * static_cast<float>(q) - dmin * static_cast<float>(scales >> 4);
  }
}

void DecodeBlock(const BlockQ3_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 256; ++i) {
    const int low = block.qs[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
    const int high = block.hmask[i % 32] >> i / 32 & 1;
    const float scale = d * static_cast<float>(Q3KScale(block.scales, i / 16) - 32);
    out[i] = scale * static_cast<float>(low + 4 * high - 4);
  }
}

void DecodeBlock(const BlockQ4_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  const KScales scales = UnpackKScales(block.scales);
  for (int i = 0; i < 256; ++i) {
    const int q = block.qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
    const float scale = d * static_cast<float>(scales.scale[i / 32]);
    out[i] = scale * static_cast<float>(q) - dmin * static_cast<float>(scales.min[i / 32]);
  }
}

void DecodeBlock(const BlockQ5_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  const KScales scales = UnpackKScales(block.scales);
  for (int i = 0; i < 256; ++i) {
    const int low = block.qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
    const int high = block.qh[i % 32] >> i / 32 & 1;
    const float scale = d * static_cast<float>(scales.scale[i / 32]);
    out[i] =
        scale * static_cast<float>(low + 16 * high) - dmin * static_cast<float>(scales.min[i / 32]);
  }
}

void DecodeBlock(const BlockQ6_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int k = i / 32 % 4;
    const int low = block.ql[half * 64 + k % 2 * 32 + i % 32] >> k / 2 * 4 & 15;
    const int high = block.qh[half * 32 + i % 32] >> 2 * k & 3;
    const float scale = d * static_cast<float>(block.scales[i / 16]);
    out[i] = scale * static_cast<float>(low + 16 * high - 32);
  }
}

void DecodeBlock(const BlockQ8_K& block, float* out) {
  const float d = block.d;
  for (int i = 0; i < 256; ++i) out[i] = d * static_cast<float>(block.qs[i]);
}

}  // namespace strata::quant
