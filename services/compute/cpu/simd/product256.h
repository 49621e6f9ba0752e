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
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

// A format that decodes and multiplies the blocks of four weight rows at a time, whole.
template <typename Format>
inline constexpr bool kWholeBlocks = requires {
  &Format::DecodeBlocks;
};
// A format that multiplies a block with activations in an order of its own.
template <typename Format>
inline constexpr bool kWideDots = requires {
  &Format::Arrange;
};

template <typename Isa, typename Format>
struct Product256 {
  using Block = typename Format::Block;
  using I = typename Isa::I;
  using F = typename Isa::F;
  using Parts = typename PartsOf<Format>::Type;
  // Blocks of a row that are taken apart before they are multiplied.
  static constexpr int kBatch = Parts::kBatch;
  static constexpr int kLanes = Isa::kLanes;
  static constexpr int kGroups = 256 / Format::kGroup;
  static constexpr int kSteps = Format::kGroup / 4;  // panel vectors of a group
  // With a dot instruction codes are stored plus kDotBias (128, or 0 if the instruction takes
  // signed factors) where they can be negative; its undoing is a term of the activations alone
  // ("shift").
  static constexpr bool kShifted = Format::kSigned || Format::kOffset != 0;

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
                            blocks * sizeof(Block), kWholeBlocks<Format> ? 4 : 1);
      std::conditional_t<kWholeBlocks<Format>, WholeTerms<kRows>, Terms<kRows>> terms[kChunk];
      if constexpr (kWholeBlocks<Format>) {
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

  // ---- Panels ----

  struct Panel {
    alignas(64) uint8_t codes[64][kLanes][4];
    // With a dot instruction the scale; else the scale in both 16-bit halves.
    alignas(64) int32_t scales[kGroups][kLanes];
    alignas(64) int32_t scale_pairs[kGroups / 2][kLanes];  // of groups 2g (low) and 2g + 1
    alignas(64) int32_t min_pairs[kGroups / 2][kLanes];
    alignas(64) float d[kLanes];
    alignas(64) float dmin[kLanes];
  };

  // Eight bytes of eight rows to `to`[8][kLanes] as 32-bit lanes.
  static void Spread(const __m128i* bytes, __m256i* to) {
    for (int r = 0; r < 8; ++r) to[r] = _mm256_cvtepi8_epi32(bytes[r]);
    Lanes8::Transpose(to);
  }
  static __m256i Pair(__m256i low, __m256i high) {
    return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
  }

  static void DecodeEight(const EightRows& rows, int64_t b, int lane, Panel* panel) {
    __m128i scales[8];
    __m128i mins[8];
    const std::byte* at[8];
    for (int r = 0; r < 8; ++r) {
      const Block& block = rows.template At<Block>(r, b);
      at[r] = reinterpret_cast<const std::byte*>(&block);
      scales[r] = Format::Scales(block);
      if constexpr (Format::kMins) mins[r] = Format::Mins(block);
    }
    _mm256_store_ps(panel->d + lane, Format::D(at));
    if constexpr (Format::kMins) {
      _mm256_store_ps(panel->dmin + lane, Format::Dmin(at));
    }
    for (int half = 0; half < kGroups / 8; ++half) {
      __m256i s[8];
      __m256i m[8];
      Spread(scales, s);
      if constexpr (Format::kMins) Spread(mins, m);
      for (int g = 0; g < 8; ++g) {
        Isa256Store(&panel->scales[half * 8 + g][lane], Isa::kHasDot ? s[g] : Pair(s[g], s[g]));
        if (g % 2 != 0) continue;
        if constexpr (Format::kOffset != 0 && !Isa::kHasDot) {
          Isa256Store(&panel->scale_pairs[half * 4 + g / 2][lane], Pair(s[g], s[g + 1]));
        }
        if constexpr (Format::kMins) {
          Isa256Store(&panel->min_pairs[half * 4 + g / 2][lane], Pair(m[g], m[g + 1]));
        }
      }
      for (int r = 0; r < 8; ++r) {
        scales[r] = _mm_srli_si128(scales[r], 8);
        if constexpr (Format::kMins) mins[r] = _mm_srli_si128(mins[r], 8);
      }
    }
    const auto spread = [panel, lane](auto codes) {
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) {
        __m256i v[8];
        for (int r = 0; r < 8; ++r) v[r] = codes(r, g);
        Lanes8::Transpose(v);
        for (int i = 0; i < 8; ++i) {
          if constexpr (Isa::kHasDot && kShifted) {
            v[i] = _mm256_add_epi8(
                v[i], _mm256_set1_epi8(static_cast<char>(Isa::kDotBias - Format::kOffset)));
          }
          Isa256Store(&panel->codes[g * 8 + i][lane], v[i]);
        }
      }
    };
    if constexpr (kWholeBlocks<Format>) {
      alignas(64) int8_t decoded[8][256];
      for (int r = 0; r < 8; r += 4) {
        const Block* four[4];
        for (int p = 0; p < 4; ++p) four[p] = &rows.template At<Block>(r + p, b);
        Format::DecodeBlocks(four, decoded + r);
      }
      spread([&decoded](int r, int g) { return Bytes::Load(decoded[r] + g * 32); });
    } else {
      Parts parts[8];
      for (int r = 0; r < 8; ++r) parts[r].Load(rows.template At<Block>(r, b));
      spread([&parts](int r, int g) { return parts[r].Codes(g); });
    }
  }
  static void Isa256Store(void* p, __m256i x) { _mm256_store_si256(static_cast<__m256i*>(p), x); }

  // Adds block b of kRows activation rows times the panel to `out`.
  template <int kRows>
  static void Multiply(const Panel& panel, const Int8Row256* x, int64_t b, float* out,
                       int64_t out_stride) {
    I sum[kRows];
    const int8_t* q[kRows];
    for (int r = 0; r < kRows; ++r) {
      sum[r] = Isa::Zero();
      q[r] = x[r].q + b * 256;
    }
    for (int g = 0; g < kGroups; ++g) {
      const I scale = Isa::Load(panel.scales[g]);
      if constexpr (Isa::kHasDot) {
        I dot[kRows];
        for (int r = 0; r < kRows; ++r) {
          if constexpr (kShifted && Isa::kDotBias != 0) {
            const int32_t* shift = Format::kGroup == 32 ? x[r].shift32 : x[r].shift16;
            dot[r] = Isa::Broadcast(shift + b * kGroups + g);
          } else {
            dot[r] = Isa::Zero();
          }
        }
#pragma GCC unroll 8
        for (int i = 0; i < kSteps; ++i) {
          const I w = Isa::Load(panel.codes[g * kSteps + i]);
          for (int r = 0; r < kRows; ++r) {
            dot[r] = Isa::Dot(dot[r], w, Isa::Broadcast(q[r] + (g * kSteps + i) * 4));
          }
        }
        for (int r = 0; r < kRows; ++r) sum[r] = Isa::Add(sum[r], Isa::Mul(dot[r], scale));
      } else {
        constexpr int kChain = Format::kHeadroom < kSteps ? Format::kHeadroom : kSteps;
        static_assert(kSteps % kChain == 0);
        for (int i = 0; i < kSteps; i += kChain) {
          I pairs[kRows];
          for (int r = 0; r < kRows; ++r) pairs[r] = Isa::Zero();
#pragma GCC unroll 8
          for (int j = 0; j < kChain; ++j) {
            const I w = Isa::Load(panel.codes[g * kSteps + i + j]);
            const I size = Format::kSigned ? Isa::Abs8(w) : w;
            for (int r = 0; r < kRows; ++r) {
              I a = Isa::Broadcast(q[r] + (g * kSteps + i + j) * 4);
              if constexpr (Format::kSigned) a = Isa::Sign8(a, w);
              const I pair = Isa::PairDot(size, a);
              pairs[r] = j == 0 ? pair : Isa::Add16(pairs[r], pair);
            }
          }
          for (int r = 0; r < kRows; ++r) sum[r] = Isa::MulAdd16(pairs[r], scale, sum[r]);
        }
      }
    }
    if constexpr (Format::kOffset != 0 && !Isa::kHasDot) {
      for (int r = 0; r < kRows; ++r) {
        I offset = Isa::Zero();
        for (int g = 0; g < kGroups / 2; ++g) {
          offset = Isa::MulAdd16(Isa::Load(panel.scale_pairs[g]),
                                 Isa::Broadcast(x[r].sum16 + b * 16 + g * 2), offset);
        }
        sum[r] = Isa::Add(sum[r], Isa::Mul(offset, Isa::Set1(-Format::kOffset)));
      }
    }
    const F d = Isa::LoadF(panel.d);
    for (int r = 0; r < kRows; ++r) {
      const F dx = Isa::Set1F(x[r].d[b]);
      float* y = out + r * out_stride;
      F value = Isa::MulAddF(Isa::MulF(d, dx), Isa::ToFloat(sum[r]), Isa::LoadF(y));
      if constexpr (Format::kMins) {
        const int16_t* sums = Format::kGroup == 32 ? x[r].sum32 : x[r].sum16;
        I min = Isa::Zero();
        for (int g = 0; g < kGroups / 2; ++g) {
          min = Isa::MulAdd16(Isa::Load(panel.min_pairs[g]),
                              Isa::Broadcast(sums + b * kGroups + g * 2), min);
        }
        value = Isa::NegMulAddF(Isa::MulF(Isa::LoadF(panel.dmin), dx), Isa::ToFloat(min), value);
      }
      Isa::StoreF(y, value);
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
    auto* panel = reinterpret_cast<Panel*>(tile.scratch);
    const TileRows<Int8Row256> x(tile);
    PanelReadAhead ahead(tile, kLanes, sizeof(Block));
    for (int o = 0; o < tile.outputs; o += kLanes) {
      ClearOutputs<kLanes>(tile, o);
      for (int64_t b = 0; b < tile.inputs / 256; ++b) {
        for (int lane = 0; lane < kLanes; lane += 8) {
          DecodeEight(EightRows(tile, o + lane), b, lane, panel);
        }
        ahead.Begin(tile.weights + o * tile.weight_row_bytes, b * sizeof(Block));
        ForRowPieces<Isa::kPanelRows>(tile.row_count, 0, [&]<int kRows>(int r) {
          ahead(r, kRows, tile.row_count);
          Multiply<kRows>(*panel, x.row + r, b, tile.out + r * tile.out_stride + o,
                          tile.out_stride);
        });
      }
    }
  }
};

}  // namespace
}  // namespace strata::compute
