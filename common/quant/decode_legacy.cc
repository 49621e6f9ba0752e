#include "common/quant/decode_block.h"
#include "common/quant/float16.h"

namespace strata::quant {
namespace {

// The fifth bits of w[j] and w[j + 16], in place above the four low bits.
int FifthBit(const uint8_t* qh, int i) { return (qh[i / 8] >> i % 8 & 1) << 4; }

}  // namespace

void DecodeBlock(const BlockQ4_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((block.qs[j] & 15) - 8) * d;
    out[j + 16] = static_cast<float>((block.qs[j] >> 4) - 8) * d;
  }
}

void DecodeBlock(const BlockQ4_1& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float m = HalfToFloat(block.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(block.qs[j] & 15) * d + m;
    out[j + 16] = static_cast<float>(block.qs[j] >> 4) * d + m;
  }
}

void DecodeBlock(const BlockQ5_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(((block.qs[j] & 15) | FifthBit(block.qh, j)) - 16) * d;
    out[j + 16] = static_cast<float>((block.qs[j] >> 4 | FifthBit(block.qh, j + 16)) - 16) * d;
  }
}

void DecodeBlock(const BlockQ5_1& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float m = HalfToFloat(block.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((block.qs[j] & 15) | FifthBit(block.qh, j)) * d + m;
    out[j + 16] = static_cast<float>(block.qs[j] >> 4 | FifthBit(block.qh, j + 16)) * d + m;
  }
}

void DecodeBlock(const BlockQ8_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(block.qs[j]) * d;
}

void DecodeBlock(const BlockQ8_1& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(block.qs[j]) * d;
}

}  // namespace strata::quant
