#include <algorithm>
#include <array>

#include "common/quant/encode_block.h"
#include "common/quant/k_scales.h"
#include "common/quant/superblock.h"

namespace strata::quant {
namespace {

// Eight groups of 32 with 6-bit scales and minima: what Q4_K and Q5_K have in common.
template <typename Block>
void StoreScales(const AffineSuperblock<8, 32>& fit, Block* block) {
  block->d = fit.d;
  block->dmin = fit.dmin;
  KScales scales{};
  for (int g = 0; g < 8; ++g) {
    scales.scale[g] = static_cast<uint8_t>(fit.scale[g]);
    scales.min[g] = static_cast<uint8_t>(fit.min[g]);
  }
  PackKScales(scales, block->scales);
  std::fill(std::begin(block->qs), std::end(block->qs), uint8_t{0});
  for (int i = 0; i < 256; ++i) {
    block->qs[i / 64 * 32 + i % 32] |= (fit.code[i] & 15) << (i / 32 % 2 * 4);
  }
}

}  // namespace

void EncodeBlock(const float* x, BlockQ2_K* block) {
  const auto fit = FitAffine<16, 16, 3, 15>(x);
  *block = {};
  block->d = fit.d;
  block->dmin = fit.dmin;
  for (int g = 0; g < 16; ++g) {
    block->scales[g] = static_cast<uint8_t>(fit.scale[g] | fit.min[g] << 4);
  }
  for (int i = 0; i < 256; ++i) {
    block->qs[i / 128 * 32 + i % 32] |= fit.code[i] << 2 * (i / 32 % 4);
  }
}

void EncodeBlock(const float* x, BlockQ3_K* block) {
  const auto fit = FitSymmetric<LinearGrid<-4, 3>, 16, 16, -32>(x);
  *block = {};
  block->d = fit.d;
  std::array<uint8_t, 16> scales;
  for (int g = 0; g < 16; ++g) scales[g] = static_cast<uint8_t>(fit.scale[g] + 32);
  PackQ3KScales(scales.data(), block->scales);
  for (int i = 0; i < 256; ++i) {
    block->qs[i / 128 * 32 + i % 32] |= (fit.code[i] & 3) << 2 * (i / 32 % 4);
    block->hmask[i % 32] |= fit.code[i] >> 2 << i / 32;
  }
}

void EncodeBlock(const float* x, BlockQ4_K* block) {
  StoreScales(FitAffine<8, 32, 15, 63>(x), block);
}

void EncodeBlock(const float* x, BlockQ5_K* block) {
  const auto fit = FitAffine<8, 32, 31, 63>(x);
  StoreScales(fit, block);
  std::fill(std::begin(block->qh), std::end(block->qh), uint8_t{0});
  for (int i = 0; i < 256; ++i) block->qh[i % 32] |= fit.code[i] >> 4 << i / 32;
}

void EncodeBlock(const float* x, BlockQ6_K* block) {
  const auto fit = FitSymmetric<LinearGrid<-32, 31>, 16, 16, -128>(x);
  *block = {};
  block->d = fit.d;
  for (int g = 0; g < 16; ++g) block->scales[g] = static_cast<int8_t>(fit.scale[g]);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int k = i / 32 % 4;
    block->ql[half * 64 + k % 2 * 32 + i % 32] |= (fit.code[i] & 15) << k / 2 * 4;
    block->qh[half * 32 + i % 32] |= fit.code[i] >> 4 << 2 * k;
  }
}

}  // namespace strata::quant
