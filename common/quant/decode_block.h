// One block to floats: the overloads behind DecodeRow, for code that already knows its type. `out`
// receives Block::kWeights floats.
#pragma once

#include "common/quant/blocks.h"

namespace strata::quant {

void DecodeBlock(const BlockQ4_0& block, float* out);
void DecodeBlock(const BlockQ4_1& block, float* out);
void DecodeBlock(const BlockQ5_0& block, float* out);
void DecodeBlock(const BlockQ5_1& block, float* out);
void DecodeBlock(const BlockQ8_0& block, float* out);
void DecodeBlock(const BlockQ8_1& block, float* out);

void DecodeBlock(const BlockQ2_K& block, float* out);
void DecodeBlock(const BlockQ3_K& block, float* out);
void DecodeBlock(const BlockQ4_K& block, float* out);
void DecodeBlock(const BlockQ5_K& block, float* out);
void DecodeBlock(const BlockQ6_K& block, float* out);
void DecodeBlock(const BlockQ8_K& block, float* out);

void DecodeBlock(const BlockIQ1_S& block, float* out);
void DecodeBlock(const BlockIQ1_M& block, float* out);
void DecodeBlock(const BlockIQ2_XXS& block, float* out);
void DecodeBlock(const BlockIQ2_XS& block, float* out);
void DecodeBlock(const BlockIQ2_S& block, float* out);
void DecodeBlock(const BlockIQ3_XXS& block, float* out);
void DecodeBlock(const BlockIQ3_S& block, float* out);
void DecodeBlock(const BlockIQ4_NL& block, float* out);
void DecodeBlock(const BlockIQ4_XS& block, float* out);

void DecodeBlock(const BlockMXFP4& block, float* out);
void DecodeBlock(const BlockNVFP4& block, float* out);

void DecodeBlock(const BlockQ1_0& block, float* out);
void DecodeBlock(const BlockQ2_0& block, float* out);
void DecodeBlock(const BlockTQ1_0& block, float* out);
void DecodeBlock(const BlockTQ2_0& block, float* out);

}  // namespace strata::quant
