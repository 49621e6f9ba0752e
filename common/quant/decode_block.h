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

void DecodeBlock(const BlockMXFP4& block, float* out);
void DecodeBlock(const BlockNVFP4& block, float* out);

void DecodeBlock(const BlockQ1_0& block, float* out);
void DecodeBlock(const BlockQ2_0& block, float* out);
void DecodeBlock(const BlockTQ1_0& block, float* out);
void DecodeBlock(const BlockTQ2_0& block, float* out);

}  // namespace strata::quant
