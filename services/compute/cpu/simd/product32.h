// Products of weights in blocks of 32 (int8_product.h says what is computed and how) whose codes do
// not fit 16 bytes; the others are lane_product.h's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "services/compute/cpu/activations.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/group_product.h"
#include "services/compute/cpu/simd/int8_product.h"
#include "services/compute/cpu/simd/lanes8.h"
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

template <typename Isa, typename Format>
struct Product32 {
  using Block = typename Format::Block;
  using I = typename Isa::I;
  using F = typename Isa::F;
  static constexpr int kLanes = Isa::kLanes;
  using Group = GroupProduct<Isa, Format>;
  static constexpr bool kAdd128 = Group::kAdd128;
  static constexpr int kExcess = Group::kExcess;

  // Eight blocks of one weight row and one activation row: their float terms, a block a lane.
  struct Terms {
    __m256 dot;    // sum_i c_i q_i
    __m256 scale;  // d_w d_x
    __m256 min;    // m d_x
  };

  // With `count` of the eight blocks in use; terms[r * stride] for each row r.
  template <int kRows>
  static void EightBlocks(const Block* blocks, int count, const Int8Row32* x, int64_t b,
                          Terms* terms, int stride) {
    __m256i dots[kRows][8];
    const std::byte* at[8];
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      const int used = k < count ? k : count - 1;
      at[k] = reinterpret_cast<const std::byte*>(blocks + used);
      __m256i codes = Format::Codes(blocks[used]);
      if constexpr (kAdd128) codes = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
      const __m256i size = SizeOf<Format>(codes);
      for (int r = 0; r < kRows; ++r) {
        const __m256i q = Bytes::Load(x[r].q + (b + used) * 32);
        if constexpr (Isa::kHasDot) {
          dots[r][k] = Isa::Dot256(_mm256_setzero_si256(), codes, q);
        } else {
          dots[r][k] = _mm256_madd_epi16(PairDot32<Format>(codes, size, q), _mm256_set1_epi16(1));
        }
      }
    }
    const __m256 scale = Format::Scales(at);
    const __m256i mask =
        _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    for (int r = 0; r < kRows; ++r) {
      __m256i dot = Lanes8::SumEach(dots[r]);
      // Masked, so as not to read past the end of the arrays.
      const __m256 dx =
          count == 8 ? _mm256_loadu_ps(x[r].d + b) : _mm256_maskload_ps(x[r].d + b, mask);
      if constexpr (kExcess != 0) {
        const __m256i shift =
            count == 8 ? Bytes::Load(x[r].shift + b) : _mm256_maskload_epi32(x[r].shift + b, mask);
        constexpr int kBits = std::countr_zero(128U / kExcess);
        dot = _mm256_add_epi32(dot, _mm256_srai_epi32(shift, kBits));
      }
      Terms& to = terms[r * stride];
      to.dot = _mm256_cvtepi32_ps(dot);
      to.scale = _mm256_mul_ps(scale, dx);
      if constexpr (Format::kMins) to.min = _mm256_mul_ps(Format::Mins(at), dx);
    }
  }

  // y + the terms of up to eight blocks of eight outputs, in the order of the blocks.
  static __m256 AddTerms(const Terms* terms, const Int8Row32& x, int64_t b, int64_t count,
                         __m256 y) {
    __m256 dot[8];
    __m256 scale[8];
    __m256 min[8];
    for (int i = 0; i < 8; ++i) {
      dot[i] = terms[i].dot;
      scale[i] = terms[i].scale;
      if constexpr (Format::kMins) min[i] = terms[i].min;
    }
    Lanes8::Transpose(dot);
    Lanes8::Transpose(scale);
    if constexpr (Format::kMins) Lanes8::Transpose(min);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      if (k >= count) break;
      y = _mm256_fmadd_ps(scale[k], dot[k], y);
      if constexpr (Format::kMins) {
        y = _mm256_fmadd_ps(min[k], _mm256_set1_ps(static_cast<float>(x.sum[b + k])), y);
      }
    }
    return y;
  }

  template <int kRows>
  static void FewRows(const EightRows& rows, const ProductTile& tile, int o, int first) {
    constexpr int kChunk = 16 / kRows;  // groups of eight blocks; whole rows are read fastest
    const int64_t blocks = tile.inputs / 32;
    Int8Row32 x[kRows];
    __m256 y[kRows];
    for (int r = 0; r < kRows; ++r) {
      x[r] = Int8Row32::At(tile.rows[first + r], tile.inputs);
      y[r] = _mm256_setzero_ps();
    }
    for (int64_t begin = 0; begin < blocks; begin += kChunk * 8) {
      const int64_t left = blocks - begin;
      const int groups = static_cast<int>(left < kChunk * 8 ? (left + 7) / 8 : kChunk);
      const int64_t end = left < kChunk * 8 ? blocks : begin + kChunk * 8;
      const ReadAhead ahead(rows, begin * sizeof(Block), end * sizeof(Block),
                            blocks * sizeof(Block), 1);
      Terms terms[kChunk][kRows][8];
      for (int i = 0; i < 8; ++i) {
        const Block* row = &rows.template At<Block>(i, begin);
        for (int g = 0; g < groups; ++g) {
          const int64_t b = begin + g * 8;
          ahead(i, g * 8 * sizeof(Block), 8 * sizeof(Block));
          if (left - g * 8 >= 8) {  // a constant count makes shorter code
            EightBlocks<kRows>(row + g * 8, 8, x, b, &terms[g][0][i], 8);
          } else {
            EightBlocks<kRows>(row + g * 8, static_cast<int>(left - g * 8), x, b, &terms[g][0][i],
                               8);
          }
        }
      }
      for (int g = 0; g < groups; ++g) {
        for (int r = 0; r < kRows; ++r) {
          y[r] = AddTerms(terms[g][r], x[r], begin + g * 8, left - g * 8, y[r]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      _mm256_storeu_ps(tile.out + (first + r) * tile.out_stride + o, y[r]);
    }
  }

  // Up to eight blocks of kOutputs rows, a row in each lane. If kFlips, signed codes are magnitudes
  // beside 255 where they are negative (panel256.h): faster to multiply with and dearer to make, so
  // for many rows of activations.
  template <bool kWithFlips>
  struct Panel {
    static constexpr bool kFlips = kWithFlips;
    static constexpr int kVectors = kFlips ? Isa::kPanelVectors : Group::kVectors;
    static constexpr int kOutputs = kVectors * kLanes;
    // See panel256.h.
    static constexpr int kPanelRows = kFlips && Group::kChain == 1 ? 3 : Isa::kPanelRows;

    alignas(64) uint8_t codes[8][8][kFlips ? 2 : 1][kOutputs][4];
    alignas(64) int32_t start[8][kOutputs];
    alignas(64) float d[8][kOutputs];
    alignas(64) float min[8][kOutputs];

    // One of the blocks, as GroupProduct wants it.
    struct GroupOf {
      static constexpr bool kFlips = kWithFlips;
      const Panel& panel;
      int block;
      I Code(int v, int k) const { return Isa::Load(panel.codes[block][k][0][v * kLanes]); }
      I Flip(int v, int k) const { return Isa::Load(panel.codes[block][k][1][v * kLanes]); }
      I Start(int v) const { return Isa::Load(panel.start[block] + v * kLanes); }
      F D(int v) const { return Isa::LoadF(panel.d[block] + v * kLanes); }
      F Min(int v) const { return Isa::LoadF(panel.min[block] + v * kLanes); }
    };

    // Block number `block` of eight weight rows, to block i of the outputs from number `lane` on.
    void DecodeEight(const EightRows& rows, int64_t block, int lane, int i) {
      const std::byte* at[8];
      __m256i v[8];
      for (int r = 0; r < 8; ++r) {
        const Block& b = rows.template At<Block>(r, block);
        at[r] = reinterpret_cast<const std::byte*>(&b);
        v[r] = Format::Codes(b);
      }
      _mm256_store_ps(d[i] + lane, Format::Scales(at));
      if constexpr (Format::kMins) _mm256_store_ps(min[i] + lane, Format::Mins(at));
      Lanes8::Transpose(v);
      const auto store = [](void* to, __m256i x) { *static_cast<__m256i*>(to) = x; };
      __m256i negative = _mm256_setzero_si256();
      for (int k = 0; k < 8; ++k) {
        if constexpr (kAdd128) v[k] = _mm256_xor_si256(v[k], _mm256_set1_epi8(-128));
        if constexpr (kFlips) {
          const __m256i flip = _mm256_cmpgt_epi8(_mm256_setzero_si256(), v[k]);
          v[k] = _mm256_abs_epi8(v[k]);
          store(codes[i][k][1][lane], flip);
          const __m256i flipped = _mm256_and_si256(v[k], flip);
          negative = _mm256_add_epi16(negative, _mm256_maddubs_epi16(flipped, _mm256_set1_epi8(1)));
        }
        store(codes[i][k][0][lane], v[k]);
      }
      if constexpr (kFlips) {
        store(start[i] + lane, _mm256_madd_epi16(negative, _mm256_set1_epi16(1)));
      }
    }

    // Adds the first `blocks` blocks, which are those of the inputs from first_block on.
    template <int kRows>
    void Multiply(const Int8Row32* x, int64_t first_block, int blocks, float* out,
                  int64_t out_stride) const {
      F y[kVectors][kRows];
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) y[v][r] = Isa::LoadF(out + r * out_stride + v * kLanes);
      }
      for (int i = 0; i < blocks; ++i) {
        Group::template Add<kVectors, kRows>(GroupOf{*this, i}, x, (first_block + i) * 32, y);
      }
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) Isa::StoreF(out + r * out_stride + v * kLanes, y[v][r]);
      }
    }
    // The same by itself: inlined, GCC keeps some of the sums in memory (panel256.h).
    template <int kRows>
    [[gnu::noinline]] void MultiplyApart(const Int8Row32* x, int64_t first_block, int blocks,
                                         float* out, int64_t out_stride) const {
      Multiply<kRows>(x, first_block, blocks, out, out_stride);
    }
  };
  static constexpr bool kMayFlip = !Isa::kHasDot && Format::kSigned;

  template <typename PanelType>
  static void RunMany(const ProductTile& tile);
  static void Run(const ProductTile& tile);
};

template <typename Isa, typename Format>
void Product32<Isa, Format>::Run(const ProductTile& tile) {
  constexpr int kFewToFlip = 12;
  if (tile.row_count <= Isa::kFewRows) {
    RunFewRows<Product32<Isa, Format>, EightRows, 8>(tile);
  } else if (!kMayFlip || tile.row_count <= kFewToFlip) {
    RunMany<Panel<false>>(tile);
  } else {
    RunMany<Panel<kMayFlip>>(tile);
  }
}

template <typename Isa, typename Format>
template <typename PanelType>
void Product32<Isa, Format>::RunMany(const ProductTile& tile) {
  auto* panel = reinterpret_cast<PanelType*>(tile.scratch);
  const TileRows<Int8Row32> x(tile);
  const int64_t all_blocks = tile.inputs / 32;
  PanelReadAhead ahead(tile, PanelType::kOutputs, 8 * sizeof(Block));
  for (int o = 0; o < tile.outputs; o += PanelType::kOutputs) {
    ClearOutputs<PanelType::kOutputs>(tile, o);
    for (int64_t b = 0; b < all_blocks; b += 8) {
      const int blocks = static_cast<int>(all_blocks - b < 8 ? all_blocks - b : 8);
      for (int lane = 0; lane < PanelType::kOutputs; lane += 8) {
        const EightRows rows(tile, o + lane);
        for (int i = 0; i < blocks; ++i) panel->DecodeEight(rows, b + i, lane, i);
      }
      ahead.Begin(tile.weights + o * tile.weight_row_bytes, b * sizeof(Block));
      ForRowPieces<PanelType::kPanelRows>(tile.row_count, 0, [&]<int kRows>(int r) {
        ahead(r, kRows, tile.row_count);
        float* const out = tile.out + r * tile.out_stride + o;
        if constexpr (kMayFlip) {
          panel->template MultiplyApart<kRows>(x.row + r, b, blocks, out, tile.out_stride);
        } else {
          panel->template Multiply<kRows>(x.row + r, b, blocks, out, tile.out_stride);
        }
      });
    }
  }
}

}  // namespace
}  // namespace strata::compute
