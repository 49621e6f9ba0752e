#include <bit>

#include "common/quant/codebooks.h"
#include "common/quant/decode_block.h"
#include "common/quant/float16.h"
#include "common/quant/values4.h"

namespace strata::quant {
namespace {

// Eight sign bits of a 7-bit sign index: the top one makes their number even.
uint32_t Signs(uint32_t index) { return index | (std::popcount(index) & 1) << 7; }

float Magnitude(uint64_t entry, int j) { return static_cast<float>(entry >> 8 * j & 255); }

// out[j] = scale * entry[j] with the sign of bit j, for `weights` entries of the codebook.
void DecodeSigned(float scale, uint64_t entry, uint32_t signs, int weights, float* out) {
  for (int j = 0; j < weights; ++j) {
    const float value = scale * Magnitude(entry, j);
    out[j] = (signs >> j & 1) != 0 ? -value : value;
  }
}

// IQ1: out[j] = scale * (entry[j] + shift), entries -1, 0, 1.
void DecodeShifted(float scale, uint64_t entry, float shift, float* out) {
  for (int j = 0; j < 8; ++j) {
    const auto value = static_cast<int8_t>(entry >> 8 * j & 255);
    out[j] = scale * (static_cast<float>(value) + shift);
  }
}

uint32_t Word(const uint8_t* bytes) {
  return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<uint32_t>(bytes[3]) << 24;
}

}  // namespace

void DecodeBlock(const BlockIQ2_XXS& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int ib = 0; ib < 8; ++ib) {
    const uint32_t indices = block.qs[4 * ib] | static_cast<uint32_t>(block.qs[4 * ib + 1]) << 16;
    const uint32_t rest = block.qs[4 * ib + 2] | static_cast<uint32_t>(block.qs[4 * ib + 3]) << 16;
    const float scale = d * (0.5F + static_cast<float>(rest >> 28)) * 0.25F;
    for (int l = 0; l < 4; ++l) {
      DecodeSigned(scale, kIq2XxsGrid[indices >> 8 * l & 255], Signs(rest >> 7 * l & 127), 8,
                   out + 32 * ib + 8 * l);
    }
  }
}

void DecodeBlock(const BlockIQ2_XS& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int l = 0; l < 32; ++l) {
    const int s = block.scales[l / 4] >> (l % 4 / 2 * 4) & 15;
    const float scale = d * (0.5F + static_cast<float>(s)) * 0.25F;
    DecodeSigned(scale, kIq2XsGrid[block.qs[l] & 511], Signs(block.qs[l] >> 9), 8, out + 8 * l);
  }
}

void DecodeBlock(const BlockIQ2_S& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int l = 0; l < 32; ++l) {
    const int s = block.scales[l / 4] >> (l % 4 / 2 * 4) & 15;
    const float scale = d * (0.5F + static_cast<float>(s)) * 0.25F;
    const int index = block.qs[l] | (block.qh[l / 4] >> 2 * (l % 4) & 3) << 8;
    DecodeSigned(scale, kIq2SGrid[index], block.qs[32 + l], 8, out + 8 * l);
  }
}

void DecodeBlock(const BlockIQ3_XXS& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int ib = 0; ib < 8; ++ib) {
    const uint32_t rest = Word(block.qs + 64 + 4 * ib);
    const float scale = d * (0.5F + static_cast<float>(rest >> 28)) * 0.5F;
    for (int l = 0; l < 8; ++l) {
      const uint32_t signs = Signs(rest >> 7 * (l / 2) & 127) >> l % 2 * 4;
      DecodeSigned(scale, kIq3XxsGrid[block.qs[8 * ib + l]], signs, 4, out + 32 * ib + 4 * l);
    }
  }
}

void DecodeBlock(const BlockIQ3_S& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 64; ++i) {
    const int s = block.scales[i / 16] >> (i / 8 % 2 * 4) & 15;
    const float scale = d * static_cast<float>(1 + 2 * s);
    const int index = block.qs[i] | (block.qh[i / 8] >> i % 8 & 1) << 8;
    DecodeSigned(scale, kIq3SGrid[index], block.signs[i / 2] >> i % 2 * 4, 4, out + 4 * i);
  }
}

void DecodeBlock(const BlockIQ1_S& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int l = 0; l < 32; ++l) {
    const uint32_t qh = block.qh[l / 4];
    const float scale = d * static_cast<float>(2 * (qh >> 12 & 7) + 1);
    const uint32_t index = block.qs[l] | (qh >> 3 * (l % 4) & 7) << 8;
    DecodeShifted(scale, kIq1SGrid[index], (qh >> 15) != 0 ? -0.125F : 0.125F, out + 8 * l);
  }
}

void DecodeBlock(const BlockIQ1_M& block, float* out) {
  uint32_t words[4];
  for (int i = 0; i < 4; ++i) words[i] = block.scales[2 * i] | block.scales[2 * i + 1] << 8;
  const float d = HalfToFloat(static_cast<uint16_t>(words[0] >> 12 | words[1] >> 12 << 4 |
                                                    words[2] >> 12 << 8 | words[3] >> 12 << 12));
  for (int l = 0; l < 32; ++l) {
    const int g = l / 2;
    const float scale = d * static_cast<float>(2 * (words[g / 4] >> 3 * (g % 4) & 7) + 1);
    const int high = block.qh[g] >> l % 2 * 4 & 15;
    const int index = block.qs[l] | (high & 7) << 8;
    DecodeShifted(scale, kIq1SGrid[index], (high & 8) != 0 ? -0.125F : 0.125F, out + 8 * l);
  }
}

void DecodeBlock(const BlockIQ4_NL& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(kIq4NlValues[block.qs[j] & 15]);
    out[j + 16] = d * static_cast<float>(kIq4NlValues[block.qs[j] >> 4]);
  }
}

void DecodeBlock(const BlockIQ4_XS& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int g = 0; g < 8; ++g) {
    const int low = block.scales_l[g / 2] >> g % 2 * 4 & 15;
    const int high = block.scales_h >> 2 * g & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    for (int j = 0; j < 16; ++j) {
      const uint8_t q = block.qs[16 * g + j];
      out[32 * g + j] = scale * static_cast<float>(kIq4NlValues[q & 15]);
      out[32 * g + j + 16] = scale * static_cast<float>(kIq4NlValues[q >> 4]);
    }
  }
}

}  // namespace strata::quant
