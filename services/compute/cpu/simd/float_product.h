// Products with float activations: W in F32 where it lies, any other type decoded row by row first.
//
// One (row, output) pair is accumulated in kLanes partial sums over i = lane, lane + kLanes, ...,
// added up in a fixed tree at the end. Tiles of several outputs and rows only interleave pairs; the
// order within a pair is the same for every tile shape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/quant/decode.h"
#include "services/compute/cpu/kernels.h"

namespace strata::compute {

template <typename V>
struct FloatProduct {
  static constexpr int kOutputs = 4;
  static constexpr int kRows = 4;

  template <int kO, int kR>
  static void Dots(const float* const* w, const float* const* x, int64_t n, float* out,
                   int64_t out_stride) {
    typename V::F sum[kO][kR];
    for (int o = 0; o < kO; ++o) {
      for (int r = 0; r < kR; ++r) sum[o][r] = V::Zero();
    }
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) {
      typename V::F a[kR];
      for (int r = 0; r < kR; ++r) a[r] = V::Load(x[r] + i);
      for (int o = 0; o < kO; ++o) {
        const typename V::F b = V::Load(w[o] + i);
        for (int r = 0; r < kR; ++r) sum[o][r] = V::MulAdd(b, a[r], sum[o][r]);
      }
    }
    if (i < n) {
      for (int o = 0; o < kO; ++o) {
        const typename V::F b = V::LoadPartial(w[o] + i, n - i);
        for (int r = 0; r < kR; ++r) {
          sum[o][r] = V::MulAdd(b, V::LoadPartial(x[r] + i, n - i), sum[o][r]);
        }
      }
    }
    for (int o = 0; o < kO; ++o) {
      for (int r = 0; r < kR; ++r) out[r * out_stride + o] = V::ReduceAdd(sum[o][r]);
    }
  }

  template <int kO>
  static void AllRows(const float* const* w, const ProductTile& tile, float* out) {
    const auto rows = reinterpret_cast<const float* const*>(tile.rows);
    int r = 0;
    for (; r + kRows <= tile.row_count; r += kRows) {
      Dots<kO, kRows>(w, rows + r, tile.inputs, out + r * tile.out_stride, tile.out_stride);
    }
    for (; r < tile.row_count; ++r) {
      Dots<kO, 1>(w, rows + r, tile.inputs, out + r * tile.out_stride, tile.out_stride);
    }
  }

  static void Run(const ProductTile& tile) {
    const float* w[kOutputs];
    const bool in_place = tile.type == TensorType::kF32;
    auto* decoded = reinterpret_cast<float*>(tile.scratch);
    for (int o = 0; o < tile.outputs; o += kOutputs) {
      const int count = tile.outputs - o < kOutputs ? tile.outputs - o : kOutputs;
      for (int j = 0; j < count; ++j) {
        const std::byte* row = tile.weights + (o + j) * tile.weight_row_bytes;
        if (in_place) {
          w[j] = reinterpret_cast<const float*>(row);
        } else {
          w[j] = decoded + j * tile.inputs;
          quant::DecodeRow(tile.type, row, decoded + j * tile.inputs, tile.inputs);
        }
      }
      if (count == kOutputs) {
        AllRows<kOutputs>(w, tile, tile.out + o);
      } else {
        for (int j = 0; j < count; ++j) AllRows<1>(w + j, tile, tile.out + o + j);
      }
    }
  }

  static size_t ScratchBytes(int64_t inputs) {
    return static_cast<size_t>(inputs) * kOutputs * sizeof(float);
  }
};

}  // namespace strata::compute
