// Products of weights in blocks of 256 (int8_product.h says what is computed and how).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "services/compute/cpu/activations.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/block_parts.h"
#include "services/compute/cpu/simd/int8_product.h"
#include "services/compute/cpu/simd/lanes8.h"
#include "services/compute/cpu/simd/panel256.h"
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

// A format that multiplies the blocks of four weight rows at a time.
template <typename Format>
inline constexpr bool kFourRows = requires {
  &Format::template BlockDots<1>;
};
// A format that multiplies a block with activations in an order of its own.
template <typename Format>
inline constexpr bool kWideDots = requires {
  &Format::Arrange;
};
// Parts with a way of their own to multiply a block's codes with activations (codebook512.h).
template <typename Parts, typename Block>
inline constexpr bool kPartsMultiply = requires(const Parts& parts, const Block& block) {
  parts.template Dots<1>(block, nullptr, 0, nullptr);
};

template <typename Isa, typename Format>
struct Product256 {
  using Block = typename Format::Block;
  using I = typename Isa::I;
  using F = typename Isa::F;
  using Parts = typename PartsOf<Format>::Type;
  // Blocks of a row that are taken apart before they are multiplied.
  static constexpr int kBatch = Parts::kBatch;

  // ---- FewRows ----

  // The scales as 16-bit words: those of eight groups of 32 in both lanes; or of the even groups of
  // 16 in the lower lane and the odd ones in the upper.
  static __m256i ScaleWords(__m128i scales) {
    if constexpr (Format::kGroup == 32) {
      return _mm256_broadcastsi128_si256(_mm_cvtepi8_epi16(scales));
    } else {
      return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(
          scales, _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15)));
    }
  }
  // Of these, those beside the pair sums of 32 codes number g.
  static __m256i PairScales(__m256i words, int g) {
    return _mm256_shuffle_epi8(words,
                               _mm256_set1_epi16(static_cast<int16_t>(2 * g | (2 * g + 1) << 8)));
  }

  // The integer terms of one block and kRows activation rows, each spread over eight lanes.
  template <int kRows>
  struct Terms {
    __m256i dot[kRows][8];  // sum_g s[g] sum_i c_i q_i, by output
    __m256i min[kRows][8];  // sum_g m[g] sum_i q_i
    __m256i Sum(int r) const { return Lanes8::SumEach(dot[r]); }
  };
  // The first of them, each in one lane.
  template <int kRows>
  struct WholeTerms {
    alignas(32) int32_t sum[kRows][8];
    __m256i Sum(int r) const { return Bytes::Load(sum[r]); }
  };

  // Of block b, the sum over its groups of 32 or 16 weights of factor times sum of q, spread over
  // the lanes.
  static __m256i WeighSums(__m128i factors, const Int8Row256& x, int64_t b) {
    return _mm256_zextsi128_si256(_mm_madd_epi16(factors, Bytes::Load16(x.sum32 + b * 8)));
  }
  static __m256i WeighSums(__m256i factors, const Int8Row256& x, int64_t b) {
    return _mm256_madd_epi16(factors, Bytes::Load(x.sum16 + b * 16));
  }

  template <int kRows>
  static void BlockTerms(const Block& block, const Parts& parts, const Int8Row256* x, int64_t b,
                         int output, Terms<kRows>* terms) {
    const __m128i scales = Format::Scales(block);
    const __m256i words = ScaleWords(scales);
    __m256i sum[kRows];
    for (int r = 0; r < kRows; ++r) sum[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const __m256i size = parts.Size(g);
      const __m256i scale = PairScales(words, g);
      for (int r = 0; r < kRows; ++r) {
        __m256i q = Bytes::Load(x[r].q + b * 256 + g * 32);
        if constexpr (Parts::kSigned) q = _mm256_sign_epi8(q, parts.Sign(g));
        sum[r] = Isa::MulAdd16x256(_mm256_maddubs_epi16(size, q), scale, sum[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      if constexpr (Format::kOffset != 0) {
        static_assert(Format::kGroup == 16);
        constexpr int kBits = std::countr_zero(unsigned{Format::kOffset});
        const __m256i sums = WeighSums(_mm256_cvtepi8_epi16(scales), x[r], b);
        sum[r] = _mm256_sub_epi32(sum[r], _mm256_slli_epi32(sums, kBits));
      }
      if constexpr (requires { parts.Offsets(scales); }) {
        sum[r] = _mm256_slli_epi32(sum[r], std::countr_zero(unsigned{Parts::kTimes}));
        sum[r] = _mm256_sub_epi32(sum[r], WeighSums(parts.Offsets(scales), x[r], b));
      }
      terms->dot[r][output] = sum[r];
      if constexpr (Format::kMins) {
        const __m128i mins = Format::Mins(block);
        if constexpr (Format::kGroup == 32) {
          terms->min[r][output] = WeighSums(_mm_cvtepi8_epi16(mins), x[r], b);
        } else {
          terms->min[r][output] = WeighSums(_mm256_cvtepi8_epi16(mins), x[r], b);
        }
      }
    }
  }

  // The same for a format whose Parts multiply.
  template <int kRows>
  requires kPartsMultiply<Parts, Block>
  static void BlockTerms(const Block& block, const Parts& parts, const Int8Row256* x, int64_t b,
                         int output, Terms<kRows>* terms) {
    __m256i dots[kRows];
    parts.template Dots<kRows>(block, x, b, dots);
    for (int r = 0; r < kRows; ++r) terms->dot[r][output] = dots[r];
  }

  // Activations in the order of a format that has one of its own; Run fills them in.
  static int8_t* Arranged(const ProductTile& tile, int row) {
    return reinterpret_cast<int8_t*>(tile.scratch) + row * tile.inputs;
  }

  template <int kRows>
  static void FewRows(const EightRows& rows, const ProductTile& tile, int o, int first) {
    constexpr int kChunk = 32 / kRows;  // blocks; whole rows are read fastest
    const int64_t blocks = tile.inputs / 256;
    Int8Row256 x[kRows];
    __m256 y[kRows];
    for (int r = 0; r < kRows; ++r) {
      x[r] = Int8Row256::At(tile.rows[first + r], tile.inputs);
      y[r] = _mm256_setzero_ps();
    }
    for (int64_t begin = 0; begin < blocks; begin += kChunk) {
      const int count = static_cast<int>(blocks - begin < kChunk ? blocks - begin : kChunk);
      const ReadAhead ahead(rows, begin * sizeof(Block), (begin + count) * sizeof(Block),
                            blocks * sizeof(Block), kFourRows<Format> ? 4 : 1);
      std::conditional_t<kFourRows<Format>, WholeTerms<kRows>, Terms<kRows>> terms[kChunk];
      if constexpr (kFourRows<Format>) {
        for (int i = 0; i < 8; i += 4) {
          for (int k = 0; k < count; ++k) {
            const Block* four[4];
            for (int p = 0; p < 4; ++p) {
              four[p] = &rows.template At<Block>(i + p, begin + k);
              ahead(i + p, k * sizeof(Block), sizeof(Block));
            }
            __m128i sums[kRows];
            Format::template BlockDots<kRows>(four, x, begin + k, sums);
            for (int r = 0; r < kRows; ++r) {
              _mm_store_si128(reinterpret_cast<__m128i*>(terms[k].sum[r] + i), sums[r]);
            }
          }
        }
      } else if constexpr (kWideDots<Format>) {
        for (int i = 0; i < 8; ++i) {
          for (int k = 0; k < count; ++k) {
            ahead(i, k * sizeof(Block), sizeof(Block));
            const int8_t* q[kRows];
            for (int r = 0; r < kRows; ++r) {
              q[r] = Arranged(tile, first + r) + (begin + k) * 256;
            }
            __m256i dots[kRows];
            __m256i mins[kRows];
            Format::template WideDots<kRows>(rows.template At<Block>(i, begin + k), q, x, begin + k,
                                             dots, mins);
            for (int r = 0; r < kRows; ++r) {
              terms[k].dot[r][i] = dots[r];
              if constexpr (Format::kMins) terms[k].min[r][i] = mins[r];
            }
          }
        }
      } else {
        for (int i = 0; i < 8; ++i) {
          if constexpr (kBatch == 1) {
            for (int k = 0; k < count; ++k) {
              ahead(i, k * sizeof(Block), sizeof(Block));
              const Block& block = rows.template At<Block>(i, begin + k);
              Parts parts;
              parts.Load(block);
              BlockTerms<kRows>(block, parts, x, begin + k, i, &terms[k]);
            }
          } else {
            for (int k = 0; k < count; k += kBatch) {
              const int in_batch = count - k < kBatch ? count - k : kBatch;
              Parts parts[kBatch];
              for (int j = 0; j < in_batch; ++j) {
                ahead(i, (k + j) * sizeof(Block), sizeof(Block));
                parts[j].Load(rows.template At<Block>(i, begin + k + j));
              }
              for (int j = 0; j < in_batch; ++j) {
                BlockTerms<kRows>(rows.template At<Block>(i, begin + k + j), parts[j], x,
                                  begin + k + j, i, &terms[k + j]);
              }
            }
          }
        }
      }
      for (int k = 0; k < count; ++k) {
        const std::byte* at[8];
        for (int i = 0; i < 8; ++i) {
          at[i] = reinterpret_cast<const std::byte*>(&rows.template At<Block>(i, begin + k));
        }
        const __m256 d = Format::D(at);
        for (int r = 0; r < kRows; ++r) {
          const __m256 dx = _mm256_set1_ps(x[r].d[begin + k]);
          y[r] = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), _mm256_cvtepi32_ps(terms[k].Sum(r)), y[r]);
          if constexpr (Format::kMins) {
            y[r] = _mm256_fnmadd_ps(_mm256_mul_ps(Format::Dmin(at), dx),
                                    _mm256_cvtepi32_ps(Lanes8::SumEach(terms[k].min[r])), y[r]);
          }
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      _mm256_storeu_ps(tile.out + (first + r) * tile.out_stride + o, y[r]);
    }
  }

  // ---- tiles ----

  static void Run(const ProductTile& tile) {
    if (tile.row_count <= Isa::kFewRows) {
      RunFew(tile);
    } else {
      RunMany(tile);
    }
  }
  static void RunFew(const ProductTile& tile) {
    if constexpr (kWideDots<Format>) {
      for (int r = 0; r < tile.row_count; ++r) {
        const Int8Row256 row = Int8Row256::At(tile.rows[r], tile.inputs);
        for (int64_t i = 0; i < tile.inputs; i += 256) {
          Format::Arrange(row.q + i, Arranged(tile, r) + i);
        }
      }
    }
    RunFewRows<Product256<Isa, Format>, EightRows, 8>(tile);
  }
  static void RunMany(const ProductTile& tile) {
    using Panel = Panel256<Isa, Format>;
    auto* panel = reinterpret_cast<Panel*>(tile.scratch);
    const TileRows<Int8Row256> x(tile);
    PanelReadAhead ahead(tile, Panel::kOutputs, sizeof(Block));
    for (int o = 0; o < tile.outputs; o += Panel::kOutputs) {
      ClearOutputs<Panel::kOutputs>(tile, o);
      for (int64_t b = 0; b < tile.inputs / 256; ++b) {
        panel->Decode(tile, o, b);
        ahead.Begin(tile.weights + o * tile.weight_row_bytes, b * sizeof(Block));
        ForRowPieces<Panel::kPanelRows>(tile.row_count, 0, [&]<int kCount>(int r) {
          ahead(r, kCount, tile.row_count);
          panel->template Multiply<kCount>(x.row + r, b, tile.out + r * tile.out_stride + o,
                                           tile.out_stride);
        });
      }
    }
  }
};

}  // namespace
}  // namespace strata::compute
