// y[t][o] = sum_i W[o][i] * x[t][i] (+ bias[o]) for weights in a quantised format.
//
// A group of 32 lanes computes one output. It walks along the weight row in steps that all lanes
// read together, side by side, so that memory traffic is one stream of the row's bytes; reading
// weights is what bounds this product. Activations stay F32: their conversion to 8 bits would save
// arithmetic that is not the bottleneck and cost accuracy.
#pragma once

#include "common/quant/blocks.h"
#include "services/compute/gpu/device.h"
#include "services/compute/gpu/reduce.h"

namespace strata::compute::gpu {

// One step of a weight format: the part of the dot product that a lane contributes. `row` is the
// weight row, `step` counts kStepWeights weights, `count` is the number of weights in the row.

// Blocks of 34 bytes, so only 2-byte loads are aligned. Eight lanes share a block, four weights
// each; a step covers four blocks.
struct DotQ8_0 {
  static constexpr int kStepWeights = 4 * quant::BlockQ8_0::kWeights;

  STRATA_DEVICE static float Step(const std::byte* row, int64_t step, int64_t count,
                                  const float* x) {
    constexpr int kLanesPerBlock = 8;
    const int64_t block = step * 4 + LaneIndex() / kLanesPerBlock;
    const int first = LaneIndex() % kLanesPerBlock * 4;
    if (block * quant::BlockQ8_0::kWeights >= count) return 0;
    const auto* words =
        reinterpret_cast<const uint16_t*>(row + block * int64_t{sizeof(quant::BlockQ8_0)});
    const uint16_t low = words[1 + first / 2];
    const uint16_t high = words[2 + first / 2];
    const float* v = x + block * quant::BlockQ8_0::kWeights + first;
    const float sum =
        Code(low) * v[0] + Code(low >> 8) * v[1] + Code(high) * v[2] + Code(high >> 8) * v[3];
    return HalfToFloat(words[0]) * sum;
  }

  // The signed value of the lowest byte.
  STRATA_DEVICE static float Code(int word) {
    return static_cast<float>(static_cast<int8_t>(word));
  }
};

// Blocks of 144 bytes, which keep 16-byte alignment. A step is a block; lane l takes the four bytes
// of codes from 4 l, that is four weights of group g = 2 (l / 8) and four of group g + 1.
struct DotQ4_K {
  static constexpr int kStepWeights = quant::BlockQ4_K::kWeights;

  STRATA_DEVICE static float Step(const std::byte* row, int64_t step, int64_t /*count*/,
                                  const float* x) {
    const std::byte* block = row + step * int64_t{sizeof(quant::BlockQ4_K)};
    const auto* halves = reinterpret_cast<const uint16_t*>(block);
    const auto* packed = reinterpret_cast<const uint8_t*>(block + 4);
    const uint32_t codes = reinterpret_cast<const uint32_t*>(block + 16)[LaneIndex()];
    const int group = LaneIndex() / 8 * 2;
    const float* low = x + step * kStepWeights + group * 32 + LaneIndex() % 8 * 4;
    const float* high = low + 32;
    float low_dot = 0, low_sum = 0, high_dot = 0, high_sum = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t byte = codes >> 8 * i;
      low_dot += static_cast<float>(byte & 15) * low[i];
      high_dot += static_cast<float>(byte >> 4 & 15) * high[i];
      low_sum += low[i];
      high_sum += high[i];
    }
    const float d = HalfToFloat(halves[0]);
    const float dmin = HalfToFloat(halves[1]);
    return d * (Scale(packed, group) * low_dot + Scale(packed, group + 1) * high_dot) -
           dmin * (Min(packed, group) * low_sum + Min(packed, group + 1) * high_sum);
  }

  // The 6-bit scale and minimum of group g; common/quant/blocks.h explains the packing.
  STRATA_DEVICE static float Scale(const uint8_t* packed, int g) {
    const int bits = g < 4 ? packed[g] & 63 : (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
    return static_cast<float>(bits);
  }
  STRATA_DEVICE static float Min(const uint8_t* packed, int g) {
    const int bits = g < 4 ? packed[g + 4] & 63 : packed[g + 4] >> 4 | packed[g] >> 6 << 4;
    return static_cast<float>(bits);
  }
};

struct MatVecParams {
  const std::byte* weights;
  int64_t weight_stride;  // bytes from row to row
  int64_t inputs;         // weights in a row
  int64_t outputs;        // rows
  const float* x;
  int64_t x_stride;   // floats from token to token
  const float* bias;  // or null
  float* out;
  int64_t out_stride;
  bool accumulate;  // add to out instead of replacing it
};

inline constexpr unsigned kMatVecThreads = 256;
inline constexpr unsigned kMatVecOutputs = kMatVecThreads / kGroup;  // of a block

// Block (b, t): outputs from b * kMatVecOutputs, token t.
template <typename Dot>
STRATA_KERNEL void MatVecKernel(MatVecParams p) {
  const int64_t output = BlockX() * kMatVecOutputs + GroupIndex();
  const bool valid = output < p.outputs;  // all lanes of a group agree
  float sum = 0;
  if (valid) {
    const std::byte* row = p.weights + output * p.weight_stride;
    const float* x = p.x + BlockY() * p.x_stride;
    const int64_t steps = (p.inputs + Dot::kStepWeights - 1) / Dot::kStepWeights;
    for (int64_t s = 0; s < steps; ++s) sum += Dot::Step(row, s, p.inputs, x);
  }
  sum = GroupSum(sum);
  if (!valid || LaneIndex() != 0) return;
  if (p.bias != nullptr) sum += p.bias[output];
  float& out = p.out[BlockY() * p.out_stride + output];
  out = p.accumulate ? out + sum : sum;
}

}  // namespace strata::compute::gpu
