#include "common/quant/decode_block.h"
#include "common/quant/float16.h"
#include "common/quant/k_scales.h"

namespace strata::quant {
namespace {

float Times(float factor, int code) { return factor * static_cast<float>(code); }

}  // namespace

void DecodeBlock(const BlockQ2_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  for (int i = 0; i < 256; ++i) {
    const uint8_t scales = block.scales[i / 16];
    const int q = block.qs[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
    out[i] = Times(Times(d, scales & 15), q) - Times(dmin, scales >> 4);
  }
}

void DecodeBlock(const BlockQ3_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 256; ++i) {
    const int low = block.qs[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
    const int high = block.hmask[i % 32] >> i / 32 & 1;
    out[i] = Times(Times(d, Q3KScale(block.scales, i / 16) - 32), low + 4 * high - 4);
  }
}

void DecodeBlock(const BlockQ4_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  const KScales scales = UnpackKScales(block.scales);
  for (int i = 0; i < 256; ++i) {
    const int q = block.qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
    out[i] = Times(Times(d, scales.scale[i / 32]), q) - Times(dmin, scales.min[i / 32]);
  }
}

void DecodeBlock(const BlockQ5_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  const KScales scales = UnpackKScales(block.scales);
  for (int i = 0; i < 256; ++i) {
    const int low = block.qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
    const int high = block.qh[i % 32] >> i / 32 & 1;
    out[i] =
        Times(Times(d, scales.scale[i / 32]), low + 16 * high) - Times(dmin, scales.min[i / 32]);
  }
}

void DecodeBlock(const BlockQ6_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int k = i / 32 % 4;
    const int low = block.ql[half * 64 + k % 2 * 32 + i % 32] >> k / 2 * 4 & 15;
    const int high = block.qh[half * 32 + i % 32] >> 2 * k & 3;
    out[i] = Times(Times(d, block.scales[i / 16]), low + 16 * high - 32);
  }
}

void DecodeBlock(const BlockQ8_K& block, float* out) {
  const float d = block.d;
  for (int i = 0; i < 256; ++i) out[i] = Times(d, block.qs[i]);
}

}  // namespace strata::quant
