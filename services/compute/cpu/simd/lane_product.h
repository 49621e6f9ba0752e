// Products of weights in short blocks (lane_formats.h): kLanes weight rows are turned into lanes
// while their codes are still packed, unless they are interleaved already, so that there are no
// sums across lanes. For a few activation rows the codes stay in registers; for more, a panel of
// them is kept and used for every row. int8_product.h says what is computed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "services/compute/cpu/activations.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/group_product.h"
#include "services/compute/cpu/simd/int8_product.h"
#include "services/compute/cpu/simd/lane_formats.h"

namespace strata::compute {
namespace {

// kLanes weight rows that lie apart; those past the end of the tile repeat the last one. The
// interface is that of InterleavedRows.
template <typename Isa>
struct LaneRows {
  static constexpr bool kInterleaved = false;
  const std::byte* row[Isa::kLanes];
  LaneRows(const ProductTile& tile, int first) : row_bytes_(tile.weight_row_bytes) {
    for (int lane = 0; lane < Isa::kLanes; ++lane) {
      const int o = first + lane < tile.outputs ? first + lane : tile.outputs - 1;
      row[lane] = tile.weights + o * tile.weight_row_bytes;
    }
  }
  template <typename Block>
  LaneBlocks<Isa> At(int64_t block) const {
    LaneBlocks<Isa> out;
    for (int lane = 0; lane < Isa::kLanes; ++lane) out.at[lane] = row[lane] + block * sizeof(Block);
    return out;
  }
  // Asks for what the next kLanes rows have where these have block `b`, in the order of memory.
  template <typename Block>
  void ReadAhead(int64_t b) const {
    constexpr size_t kBytes = Isa::kLanes * sizeof(Block);
    const std::byte* next = row[0] + Isa::kLanes * row_bytes_ + b * kBytes;
    // Long rows would crowd out what else the first level holds.
    if (Isa::kLanes * row_bytes_ > size_t{12} << 10) {
      PrefetchFar(next, kBytes);
    } else {
      Prefetch(next, kBytes);
    }
  }

 private:
  size_t row_bytes_;
};

template <typename Isa, typename Format, typename Rows>
struct LaneProduct {
  using Block = typename Format::Block;
  using I = typename Isa::I;
  using F = typename Isa::F;
  using Group = GroupProduct<Isa, Format>;
  static constexpr int kLanes = Isa::kLanes;
  static constexpr int kWeights = Block::kWeights;
  static constexpr int kGroups = kWeights / Format::kGroup;

  // A block of kLanes rows.
  struct Weights {
    I codes[kWeights / 4];
    F d[kGroups];
    F min[kGroups];
  };
  // One group of such blocks, as GroupProduct wants it.
  struct GroupOf {
    static constexpr bool kFlips = false;
    const Weights* weights;  // of the vectors of outputs, one after the other
    int group;
    I Code(int v, int k) const { return weights[v].codes[group * Format::kGroup / 4 + k]; }
    F D(int v) const { return weights[v].d[group]; }
    F Min(int v) const { return weights[v].min[group]; }
  };
  // Blocks of a panel, each of kVectors vectors of outputs.
  static constexpr int kPanelBlocks = 256 / kWeights;
  static constexpr int kVectors = Group::kVectors;
  static constexpr int kOutputs = kVectors * kLanes;
  using Panel = Weights[kPanelBlocks][kVectors];

  template <typename From>
  static void Load(const From& from, Weights* weights) {
    Format::template Codes<Isa>(from, weights->codes);
    if constexpr (Group::kAdd128) {
      const I sign = Isa::Set1(static_cast<int>(0x80808080));
      for (I& codes : weights->codes) codes = Isa::Xor(codes, sign);
    }
    Format::template Scales<Isa>(from, weights->d, weights->min);
  }

  template <int kCount, int kRows>
  static void AddBlock(const Weights* weights, const Int8Row32* x, int64_t block, F (*y)[kRows]) {
    for (int g = 0; g < kGroups; ++g) {
      Group::template Add<kCount, kRows>(GroupOf{weights, g}, x,
                                         block * kWeights + g * Format::kGroup, y);
    }
  }

  template <int kRows>
  static void FewRows(const Rows& rows, const ProductTile& tile, int o, int first) {
    Int8Row32 x[kRows];
    F y[1][kRows];
    for (int r = 0; r < kRows; ++r) {
      x[r] = Int8Row32::At(tile.rows[first + r], tile.inputs);
      y[0][r] = Isa::Set1F(0);
    }
    for (int64_t b = 0; b < tile.inputs / kWeights; ++b) {
      rows.template ReadAhead<Block>(b);
      Weights weights;
      Load(rows.template At<Block>(b), &weights);
      AddBlock<1, kRows>(&weights, x, b, y);
    }
    for (int r = 0; r < kRows; ++r) {
      Isa::StoreF(tile.out + (first + r) * tile.out_stride + o, y[0][r]);
    }
  }

  template <int kRows>
  static void Multiply(const Panel& panel, const Int8Row32* x, int64_t first_block, int blocks,
                       float* out, int64_t out_stride) {
    F y[kVectors][kRows];
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) y[v][r] = Isa::LoadF(out + r * out_stride + v * kLanes);
    }
    for (int i = 0; i < blocks; ++i) {
      AddBlock<kVectors, kRows>(panel[i], x, first_block + i, y);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) Isa::StoreF(out + r * out_stride + v * kLanes, y[v][r]);
    }
  }

  static void RunFew(const ProductTile& tile) { RunFewRows<LaneProduct, Rows, kLanes>(tile); }
  static void RunMany(const ProductTile& tile) {
    auto& panel = *reinterpret_cast<Panel*>(tile.scratch);
    const TileRows<Int8Row32> x(tile);
    const int64_t all_blocks = tile.inputs / kWeights;
    PanelReadAhead ahead(tile, kOutputs, kPanelBlocks * sizeof(Block), Rows::kInterleaved);
    for (int o = 0; o < tile.outputs; o += kOutputs) {
      ClearOutputs<kOutputs>(tile, o);
      for (int64_t b = 0; b < all_blocks; b += kPanelBlocks) {
        const int blocks =
            static_cast<int>(all_blocks - b < kPanelBlocks ? all_blocks - b : kPanelBlocks);
        for (int v = 0; v < kVectors; ++v) {
          const int first = o + v * kLanes;
          const Rows rows(tile, first < tile.outputs ? first : o);
          for (int i = 0; i < blocks; ++i) Load(rows.template At<Block>(b + i), &panel[i][v]);
        }
        ahead.Begin(tile.weights + o * tile.weight_row_bytes, b * sizeof(Block));
        ForRowPieces<Isa::kPanelRows>(tile.row_count, 0, [&]<int kRows>(int r) {
          ahead(r, kRows, tile.row_count);
          Multiply<kRows>(panel, x.row + r, b, blocks, tile.out + r * tile.out_stride + o,
                          tile.out_stride);
        });
      }
    }
  }
  static void Run(const ProductTile& tile) {
    if (tile.row_count <= Isa::kFewRows) {
      RunFew(tile);
    } else {
      RunMany(tile);
    }
  }
};

}  // namespace
}  // namespace strata::compute
