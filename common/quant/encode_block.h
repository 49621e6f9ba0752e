// One block from floats: the overloads behind EncodeRow. `x` holds Block::kWeights finite floats,
// small enough that no scale overflows.
#pragma once

#include "common/quant/blocks.h"

namespace strata::quant {

void EncodeBlock(const float* x, BlockQ4_0* block);
void EncodeBlock(const float* x, BlockQ8_0* block);

void EncodeBlock(const float* x, BlockQ2_K* block);
void EncodeBlock(const float* x, BlockQ3_K* block);
void EncodeBlock(const float* x, BlockQ4_K* block);
void EncodeBlock(const float* x, BlockQ5_K* block);
void EncodeBlock(const float* x, BlockQ6_K* block);

void EncodeBlock(const float* x, BlockIQ4_NL* block);
void EncodeBlock(const float* x, BlockIQ4_XS* block);
void EncodeBlock(const float* x, BlockMXFP4* block);

}  // namespace strata::quant
