#include "common/quant/decode_block.h"
#include "common/quant/float16.h"

namespace strata::quant {
namespace {

constexpr int kPowersOf3[5] = {1, 3, 9, 27, 81};

// Base-3 digit n of a byte of TQ1_0 (blocks.h).
int TernaryDigit(uint8_t byte, int n) {
  const auto rest = static_cast<uint8_t>(byte * kPowersOf3[n]);
  return rest * 3 >> 8;
}

}  // namespace

void DecodeBlock(const BlockQ1_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 128; ++i) out[i] = (block.qs[i / 8] >> i % 8 & 1) != 0 ? d : -d;
}

void DecodeBlock(const BlockQ2_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 64; ++i) {
    const int q = block.qs[i / 4] >> 2 * (i % 4) & 3;
    out[i] = static_cast<float>(q - 1) * d;
  }
}

void DecodeBlock(const BlockTQ1_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int n = 0; n < 5; ++n) {
    for (int j = 0; j < 32; ++j) {
      out[32 * n + j] = static_cast<float>(TernaryDigit(block.qs[j], n) - 1) * d;
    }
    for (int j = 0; j < 16; ++j) {
      out[160 + 16 * n + j] = static_cast<float>(TernaryDigit(block.qs[32 + j], n) - 1) * d;
    }
  }
  for (int n = 0; n < 4; ++n) {
    for (int j = 0; j < 4; ++j) {
      out[240 + 4 * n + j] = static_cast<float>(TernaryDigit(block.qh[j], n) - 1) * d;
    }
  }
}

void DecodeBlock(const BlockTQ2_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 256; ++i) {
    const int q = block.qs[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
    out[i] = static_cast<float>(q - 1) * d;
  }
}

}  // namespace strata::quant
