// Products with float activations: W in F32 where it lies, any other type decoded row by row first.
//
// One (row, output) pair is accumulated in kLanes partial sums over i = lane, lane + kLanes, ...,
// added up in a fixed tree at the end. Tiles of several outputs and rows only interleave pairs; the
// order within a pair is the same for every tile shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/quant/decode.h"
#include "services/compute/cpu/kernels.h"

namespace strata::compute {

template <typename V>
struct FloatProduct {
  using F = typename V::F;
  static constexpr int kOutputs = 4;
  // As many as leave registers for a weight and an activation of each.
  static constexpr int kRows = V::kRegisters == 32 ? 4 : 3;
  // From this many rows on, half-precision weights are converted once instead of in every product.
  static constexpr int kManyRows = 8;

  // How weights are read where they lie.
  struct Float32 {
    using Value = float;
    static F Load(const float* p) { return V::Load(p); }
    static F LoadPartial(const float* p, int64_t n) { return V::LoadPartial(p, n); }
  };
  template <bool kBrain>  // bfloat16, else IEEE half
  struct Bits16 {
    using Value = uint16_t;
    static F Load(const uint16_t* p) { return kBrain ? V::LoadBf16(p) : V::LoadHalf(p); }
    static F LoadPartial(const uint16_t* p, int64_t n) {
      uint16_t rest[V::kLanes] = {};
      std::memcpy(rest, p, static_cast<size_t>(n) * sizeof(uint16_t));
      return Load(rest);
    }
  };
  using Float16 = Bits16<false>;
  using Bfloat16 = Bits16<true>;

  template <typename W, int kO, int kR>
  static void Dots(const typename W::Value* const* w, const float* const* x, int64_t n, float* out,
                   int64_t out_stride) {
    F sum[kO][kR];
    for (int o = 0; o < kO; ++o) {
      for (int r = 0; r < kR; ++r) sum[o][r] = V::Zero();
    }
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) {
      F a[kR];
      for (int r = 0; r < kR; ++r) a[r] = V::Load(x[r] + i);
      for (int o = 0; o < kO; ++o) {
        const F b = W::Load(w[o] + i);
        for (int r = 0; r < kR; ++r) sum[o][r] = V::MulAdd(b, a[r], sum[o][r]);
      }
    }
    if (i < n) {
      for (int o = 0; o < kO; ++o) {
        const F b = W::LoadPartial(w[o] + i, n - i);
        for (int r = 0; r < kR; ++r) {
          sum[o][r] = V::MulAdd(b, V::LoadPartial(x[r] + i, n - i), sum[o][r]);
        }
      }
    }
    for (int o = 0; o < kO; ++o) {
      for (int r = 0; r < kR; ++r) out[r * out_stride + o] = V::ReduceAdd(sum[o][r]);
    }
  }

  template <typename W, int kO, int kR = kRows>
  static void AllRows(const typename W::Value* const* w, const ProductTile& tile, float* out,
                      int r = 0) {
    const auto rows = reinterpret_cast<const float* const*>(tile.rows);
    for (; r + kR <= tile.row_count; r += kR) {
      Dots<W, kO, kR>(w, rows + r, tile.inputs, out + r * tile.out_stride, tile.out_stride);
    }
    if constexpr (kR > 1) AllRows<W, kO, kR - 1>(w, tile, out, r);
  }

  // `row(o, slot)` gives the address of weight row o; slot < kOutputs numbers the rows in use.
  template <typename W, typename RowFn>
  static void AllOutputs(const ProductTile& tile, RowFn row) {
    const typename W::Value* w[kOutputs];
    for (int o = 0; o < tile.outputs; o += kOutputs) {
      const int count = tile.outputs - o < kOutputs ? tile.outputs - o : kOutputs;
      for (int j = 0; j < count; ++j) w[j] = row(o + j, j);
      if (count == kOutputs) {
        AllRows<W, kOutputs>(w, tile, tile.out + o);
      } else {
        for (int j = 0; j < count; ++j) AllRows<W, 1>(w + j, tile, tile.out + o + j);
      }
    }
  }

  template <typename W>
  static void InPlace(const ProductTile& tile) {
    AllOutputs<W>(tile, [&](int o, int) {
      const std::byte* row = tile.weights + o * tile.weight_row_bytes;
      return reinterpret_cast<const typename W::Value*>(row);
    });
  }

  template <typename W>
  static void Converted(const ProductTile& tile) {
    AllOutputs<Float32>(tile, [&](int o, int slot) {
      const auto* row =
          reinterpret_cast<const typename W::Value*>(tile.weights + o * tile.weight_row_bytes);
      float* to = reinterpret_cast<float*>(tile.scratch) + slot * tile.inputs;
      int64_t i = 0;
      for (; i + V::kLanes <= tile.inputs; i += V::kLanes) V::Store(to + i, W::Load(row + i));
      if (i < tile.inputs) {
        V::StorePartial(to + i, W::LoadPartial(row + i, tile.inputs - i), tile.inputs - i);
      }
      return to;
    });
  }

  template <typename W>
  static void Bits16Product(const ProductTile& tile) {
    tile.row_count < kManyRows ? InPlace<W>(tile) : Converted<W>(tile);
  }

  // Any type.
  static void Decoded(const ProductTile& tile) {
    AllOutputs<Float32>(tile, [&](int o, int slot) {
      float* to = reinterpret_cast<float*>(tile.scratch) + slot * tile.inputs;
      quant::DecodeRow(tile.type, tile.weights + o * tile.weight_row_bytes, to, tile.inputs);
      return to;
    });
  }

  static size_t ScratchBytes(int64_t inputs) {
    return static_cast<size_t>(inputs) * kOutputs * sizeof(float);
  }
};

}  // namespace strata::compute
