// Products of quantised weights with int8 activations.
//
// What is computed, for one activation row and one output, block after block in ascending order:
//   256 weights:  y = fma(d_w d_x, sum_g s[g] sum_i c_i q_i, y)
//                 y = fma(-(dmin d_x), sum_g m[g] sum_i q_i, y)       if the format has minima
//    32 weights:  y = fma(d_w d_x, sum_i c_i q_i, y),  y = fma(m d_x, sum_i q_i, y)
// The sums over integers are exact, so only the float operations written here round, and their
// order is fixed. Any way to arrange the integer part gives the same bits: there are two, on any
// instruction set, and which one runs depends on the number of rows.
//
// FewRows: eight outputs and up to four rows at a time, lanes along the inputs, lanes summed once a
// block. Weights are read along their rows, in the order of memory, because memory is the limit
// when one stream decodes; only then are the terms of eight outputs turned into lanes.
//
// Panels: kLanes outputs side by side, one a lane. A block of the weights is decoded to bytes in
// the order [inputs / 4][output][4], and then used for every row: the activation's four bytes are
// broadcast. For prompts, where arithmetic is the limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "services/compute/cpu/activations.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/lanes8.h"
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

// Asks for the next `bytes` of a weight row. Panels read many rows a little at a time, which the
// processor's own prefetching does not follow.
inline void Prefetch(const void* p, size_t bytes) {
  for (size_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(static_cast<const char*>(p) + line, _MM_HINT_T0);
  }
}

// The same into the second level: for more than the first should hold.
inline void PrefetchFar(const void* p, size_t bytes) {
  for (size_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(static_cast<const char*>(p) + line, _MM_HINT_T1);
  }
}

// Eight weight rows; those past the end of the tile repeat the last one, their results are unused.
struct EightRows {
  const std::byte* row[8];
  EightRows(const ProductTile& tile, int first) {
    for (int r = 0; r < 8; ++r) {
      const int o = first + r < tile.outputs ? first + r : tile.outputs - 1;
      row[r] = tile.weights + o * tile.weight_row_bytes;
    }
    four_rows_ahead_ = 4 * tile.weight_row_bytes;
    while (four_rows_ahead_ < kMemoryLatency) four_rows_ahead_ += 4 * tile.weight_row_bytes;
  }
  // The r-th row's block number `block`.
  template <typename Block>
  const Block& At(int r, int64_t block) const {
    return *reinterpret_cast<const Block*>(row[r] + block * sizeof(Block));
  }
  // The weights stream past once. If rows are read one after another: asks for what memory holds
  // some way after `count` blocks.
  template <typename Block>
  void Ahead(int r, int64_t block, int count) const {
    Prefetch(row[r] + block * sizeof(Block) + kMemoryLatency, count * sizeof(Block));
  }
  // If four rows are read in turn, which the processor does not foresee: the same block of the row
  // that takes this one's place.
  template <typename Block>
  void FourRowsAhead(int r, int64_t block) const {
    Prefetch(row[r] + block * sizeof(Block) + four_rows_ahead_, sizeof(Block));
  }

 private:
  static constexpr size_t kMemoryLatency = 2048;  // bytes that are read while memory answers
  size_t four_rows_ahead_;
};

// Calls fn<kRows>(first) for pieces of the rows: as many as the instruction set shares, then fewer.
template <int kRows, typename Fn>
void ForRowPieces(int rows, int first, Fn fn) {
  for (; first + kRows <= rows; first += kRows) fn.template operator()<kRows>(first);
  if constexpr (kRows > 1) ForRowPieces<kRows / 2>(rows, first, fn);
}

// The pair sums of 32 codes and 32 activations, in sixteen 16-bit lanes. `size` is |codes|.
template <typename Format>
__m256i PairDot32(__m256i codes, __m256i size, __m256i q) {
  if constexpr (Format::kSigned) {
    return _mm256_maddubs_epi16(size, _mm256_sign_epi8(q, codes));
  } else {
    return _mm256_maddubs_epi16(codes, q);
  }
}
template <typename Format>
__m256i SizeOf(__m256i codes) {
  return Format::kSigned ? _mm256_abs_epi8(codes) : codes;
}

// A format that decodes the blocks of four weight rows at a time, whole.
template <typename Format>
inline constexpr bool kWholeBlocks = requires {
  &Format::DecodeBlocks;
};

template <typename Isa, typename Format>
struct Product256 {
  using Block = typename Format::Block;
  using I = typename Isa::I;
  using F = typename Isa::F;
  static constexpr int kLanes = Isa::kLanes;
  static constexpr int kGroups = 256 / Format::kGroup;
  static constexpr int kSteps = Format::kGroup / 4;  // panel vectors of a group
  // With a dot instruction codes are stored plus 128 where they can be negative; its undoing is a
  // term of the activations alone ("shift").
  static constexpr bool kShifted = Format::kSigned || Format::kOffset != 0;

  // ---- FewRows ----

  // Scales of the two 16-groups (or the 32-group) number g of 32 codes, beside their pair sums.
  static __m256i PairScales(__m128i scales, __m256i words, int g) {
    if constexpr (Format::kGroup == 32) {
      return _mm256_shuffle_epi8(words,
                                 _mm256_set1_epi16(static_cast<int16_t>(2 * g | (2 * g + 1) << 8)));
    } else {
      constexpr int64_t kEach = 0x0101010101010101;
      return _mm256_cvtepi8_epi16(
          _mm_shuffle_epi8(scales, _mm_set_epi64x(kEach * (2 * g + 1), kEach * (2 * g))));
    }
  }

  // The integer terms of one block and kRows activation rows, each spread over eight lanes.
  template <int kRows>
  struct Terms {
    __m256i dot[kRows][8];  // sum_g s[g] sum_i c_i q_i, by output
    __m256i min[kRows][8];  // sum_g m[g] sum_i q_i
  };

  template <int kRows>
  static void BlockTerms(const Block& block, const Int8Row256* x, int64_t b, int output,
                         Terms<kRows>* terms) {
    const __m128i scales = Format::Scales(block);
    const __m256i words = _mm256_broadcastsi128_si256(_mm_cvtepi8_epi16(scales));
    __m256i sum[kRows];
    for (int r = 0; r < kRows; ++r) sum[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const __m256i codes = Format::Codes(block, g);
      const __m256i size = SizeOf<Format>(codes);
      const __m256i scale = PairScales(scales, words, g);
      for (int r = 0; r < kRows; ++r) {
        const __m256i q = Bytes::Load(x[r].q + b * 256 + g * 32);
        sum[r] = Isa::MulAdd16x256(PairDot32<Format>(codes, size, q), scale, sum[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      if constexpr (Format::kOffset != 0) {
        static_assert(Format::kGroup == 16);
        constexpr int kBits = std::countr_zero(unsigned{Format::kOffset});
        const __m256i sums =
            _mm256_madd_epi16(_mm256_cvtepi8_epi16(scales), Bytes::Load(x[r].sum16 + b * 16));
        sum[r] = _mm256_sub_epi32(sum[r], _mm256_slli_epi32(sums, kBits));
      }
      terms->dot[r][output] = sum[r];
      if constexpr (Format::kMins) {
        const __m128i mins = Format::Mins(block);
        if constexpr (Format::kGroup == 32) {
          terms->min[r][output] = _mm256_zextsi128_si256(
              _mm_madd_epi16(_mm_cvtepi8_epi16(mins), Bytes::Load16(x[r].sum32 + b * 8)));
        } else {
          terms->min[r][output] =
              _mm256_madd_epi16(_mm256_cvtepi8_epi16(mins), Bytes::Load(x[r].sum16 + b * 16));
        }
      }
    }
  }

  template <int kRows>
  static void FewRows(const EightRows& rows, const ProductTile& tile, int o, int first) {
    constexpr int kChunk = 8;  // blocks
    const int64_t blocks = tile.inputs / 256;
    Int8Row256 x[kRows];
    __m256 y[kRows];
    for (int r = 0; r < kRows; ++r) {
      x[r] = Int8Row256::At(tile.rows[first + r], tile.inputs);
      y[r] = _mm256_setzero_ps();
    }
    for (int64_t begin = 0; begin < blocks; begin += kChunk) {
      const int count = static_cast<int>(blocks - begin < kChunk ? blocks - begin : kChunk);
      Terms<kRows> terms[kChunk];
      if constexpr (kWholeBlocks<Format>) {
        for (int i = 0; i < 8; i += 4) {
          for (int k = 0; k < count; ++k) {
            const Block* four[4];
            for (int p = 0; p < 4; ++p) {
              four[p] = &rows.template At<Block>(i + p, begin + k);
              rows.FourRowsAhead<Block>(i + p, begin + k);
            }
            __m256i dots[kRows][4];
            Format::template BlockDots<kRows>(four, x, begin + k, dots);
            for (int r = 0; r < kRows; ++r) {
              for (int p = 0; p < 4; ++p) terms[k].dot[r][i + p] = dots[r][p];
            }
          }
        }
      } else {
        for (int i = 0; i < 8; ++i) {
          for (int k = 0; k < count; ++k) {
            rows.Ahead<Block>(i, begin + k, 1);
            BlockTerms<kRows>(rows.template At<Block>(i, begin + k), x, begin + k, i, &terms[k]);
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
          y[r] = _mm256_fmadd_ps(_mm256_mul_ps(d, dx),
                                 _mm256_cvtepi32_ps(Lanes8::SumEach(terms[k].dot[r])), y[r]);
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

  // `ahead`: distance in bytes to the block that this row will need next.
  static void DecodeEight(const EightRows& rows, int64_t b, size_t ahead, int lane, Panel* panel) {
    __m128i scales[8];
    __m128i mins[8];
    const std::byte* at[8];
    for (int r = 0; r < 8; ++r) {
      const Block& block = rows.template At<Block>(r, b);
      at[r] = reinterpret_cast<const std::byte*>(&block);
      Prefetch(at[r] + ahead, sizeof(Block));
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
    alignas(64) int8_t decoded[kWholeBlocks<Format> ? 8 : 1][256];
    if constexpr (kWholeBlocks<Format>) {
      for (int r = 0; r < 8; r += 4) {
        const Block* four[4];
        for (int p = 0; p < 4; ++p) four[p] = &rows.template At<Block>(r + p, b);
        Format::DecodeBlocks(four, decoded + r);
      }
    }
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      __m256i v[8];
      for (int r = 0; r < 8; ++r) {
        if constexpr (kWholeBlocks<Format>) {
          v[r] = Bytes::Load(decoded[r] + g * 32);
        } else {
          v[r] = Format::Codes(rows.template At<Block>(r, b), g);
        }
      }
      Lanes8::Transpose(v);
      for (int i = 0; i < 8; ++i) {
        if constexpr (Isa::kHasDot && kShifted) {
          v[i] = _mm256_add_epi8(v[i], _mm256_set1_epi8(static_cast<char>(128 - Format::kOffset)));
        }
        Isa256Store(&panel->codes[g * 8 + i][lane], v[i]);
      }
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
          if constexpr (kShifted) {
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

  static void Run(const ProductTile& tile);
};

// A format of 32 weights whose 16 bytes of codes begin at kNibbles.
template <typename Format>
inline constexpr bool kNibbleCodes = requires {
  Format::kNibbles;
};

template <typename Isa, typename Format>
struct Product32 {
  using Block = typename Format::Block;
  using I = typename Isa::I;
  using F = typename Isa::F;
  static constexpr int kLanes = Isa::kLanes;
  static constexpr int kSteps = 8;
  // With a dot instruction, signed codes are made unsigned by adding 128.
  static constexpr bool kAdd128 = Isa::kHasDot && Format::kSigned;
  // Codes then exceed c by this; the activations' shift, -128 * sum of q, undoes it.
  static constexpr int kExcess = kAdd128 ? 128 : Format::kOffset;

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
    constexpr int kChunk = 8;  // groups of eight blocks
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
      Terms terms[kChunk][kRows][8];
      for (int i = 0; i < 8; ++i) {
        const Block* row = &rows.template At<Block>(i, begin);
        for (int g = 0; g < groups; ++g) {
          const int64_t b = begin + g * 8;
          rows.Ahead<Block>(i, b, 8);
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

  struct Panel {
    alignas(64) uint8_t codes[8][8][kLanes][4];  // of up to eight blocks
    alignas(64) float d[8][kLanes];
    alignas(64) float min[8][kLanes];
  };

  static void DecodeEight(const EightRows& rows, int64_t block, int lane, int i, Panel* panel) {
    const std::byte* at[8];
    __m256i v[8];
    for (int r = 0; r < 8; ++r) {
      const Block& b = rows.template At<Block>(r, block);
      at[r] = reinterpret_cast<const std::byte*>(&b);
      v[r] = Format::Codes(b);
    }
    _mm256_store_ps(panel->d[i] + lane, Format::Scales(at));
    if constexpr (Format::kMins) _mm256_store_ps(panel->min[i] + lane, Format::Mins(at));
    Lanes8::Transpose(v);
    for (int k = 0; k < 8; ++k) {
      if constexpr (kAdd128) v[k] = _mm256_xor_si256(v[k], _mm256_set1_epi8(-128));
      _mm256_store_si256(reinterpret_cast<__m256i*>(&panel->codes[i][k][lane]), v[k]);
    }
  }

  // Adds a block of kRows activation rows times kLanes outputs to y. code(k): the codes of weights
  // 4 k .. 4 k + 3 of every output.
  template <int kRows, typename CodeFn>
  static void AddBlock(CodeFn code, F d, F min, const Int8Row32* x, int64_t b, F* y) {
    I dot[kRows];
    for (int r = 0; r < kRows; ++r) {
      if constexpr (kExcess == 0) {
        dot[r] = Isa::Zero();
      } else {
        dot[r] = Isa::Set1(x[r].shift[b] / (128 / kExcess));
      }
    }
    if constexpr (Isa::kHasDot) {
#pragma GCC unroll 8
      for (int k = 0; k < kSteps; ++k) {
        const I w = code(k);
        for (int r = 0; r < kRows; ++r) {
          dot[r] = Isa::Dot(dot[r], w, Isa::Broadcast(x[r].q + b * 32 + k * 4));
        }
      }
    } else {
      constexpr int kChain = Format::kHeadroom < kSteps ? Format::kHeadroom : kSteps;
#pragma GCC unroll 8
      for (int k = 0; k < kSteps; k += kChain) {
        I pairs[kRows];
        for (int r = 0; r < kRows; ++r) pairs[r] = Isa::Zero();
#pragma GCC unroll 8
        for (int j = 0; j < kChain; ++j) {
          const I w = code(k + j);
          const I size = Format::kSigned ? Isa::Abs8(w) : w;
          for (int r = 0; r < kRows; ++r) {
            I a = Isa::Broadcast(x[r].q + b * 32 + (k + j) * 4);
            if constexpr (Format::kSigned) a = Isa::Sign8(a, w);
            const I pair = Isa::PairDot(size, a);
            pairs[r] = j == 0 ? pair : Isa::Add16(pairs[r], pair);
          }
        }
        const I ones = Isa::Set1(0x00010001);
        for (int r = 0; r < kRows; ++r) dot[r] = Isa::MulAdd16(pairs[r], ones, dot[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const F dx = Isa::Set1F(x[r].d[b]);
      y[r] = Isa::MulAddF(Isa::MulF(d, dx), Isa::ToFloat(dot[r]), y[r]);
      if constexpr (Format::kMins) {
        const F sum = Isa::Set1F(static_cast<float>(x[r].sum[b]));
        y[r] = Isa::MulAddF(Isa::MulF(min, dx), sum, y[r]);
      }
    }
  }

  template <int kRows>
  static void Multiply(const Panel& panel, const Int8Row32* x, int64_t first_block, int blocks,
                       float* out, int64_t out_stride) {
    F y[kRows];
    for (int r = 0; r < kRows; ++r) y[r] = Isa::LoadF(out + r * out_stride);
    for (int i = 0; i < blocks; ++i) {
      const auto code = [&panel, i](int k) { return Isa::Load(panel.codes[i][k]); };
      const F min = Format::kMins ? Isa::LoadF(panel.min[i]) : Isa::Set1F(0);
      AddBlock<kRows>(code, Isa::LoadF(panel.d[i]), min, x, first_block + i, y);
    }
    for (int r = 0; r < kRows; ++r) Isa::StoreF(out + r * out_stride, y[r]);
  }

  // ---- FewRows of formats with 4-bit codes ----
  // Their blocks are short enough to turn kLanes rows into lanes while the codes are still packed:
  // no sums across lanes, no panel in memory.
  template <int kRows>
  static void NibbleRows(const ProductTile& tile, int o, int first) {
    const std::byte* row[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const int output = o + lane < tile.outputs ? o + lane : tile.outputs - 1;
      row[lane] = tile.weights + output * tile.weight_row_bytes;
    }
    Int8Row32 x[kRows];
    F y[kRows];
    for (int r = 0; r < kRows; ++r) {
      x[r] = Int8Row32::At(tile.rows[first + r], tile.inputs);
      y[r] = Isa::Set1F(0);
    }
    // Whether kLanes rows would crowd out what else the first level holds.
    const bool far = kLanes * tile.weight_row_bytes > size_t{12} << 10;
    const I mask = Isa::Set1(0x0f0f0f0f);
    const int64_t blocks = tile.inputs / 32;
    for (int64_t b = 0; b < blocks; ++b) {
      const size_t offset = b * sizeof(Block);
      // The next kLanes rows, in the order of memory.
      const std::byte* next = row[0] + kLanes * (tile.weight_row_bytes + offset);
      if (far) {
        PrefetchFar(next, kLanes * sizeof(Block));
      } else {
        Prefetch(next, kLanes * sizeof(Block));
      }
      I packed[4];
      Isa::LoadTransposed(row, offset + Format::kNibbles, packed);
      I codes[kSteps];
      for (int k = 0; k < 4; ++k) {
        codes[k] = FromNibbles(Isa::And(packed[k], mask));
        codes[k + 4] = FromNibbles(Isa::And(Isa::template ShiftRight16<4>(packed[k]), mask));
      }
      __m256 scales[kLanes / 8];
      __m256 mins[kLanes / 8];
      for (int half = 0; half < kLanes / 8; ++half) {
        const std::byte* at[8];
        for (int i = 0; i < 8; ++i) at[i] = row[half * 8 + i] + offset;
        scales[half] = Format::Scales(at);
        if constexpr (Format::kMins) mins[half] = Format::Mins(at);
      }
      const F min = Format::kMins ? Isa::Join(mins) : Isa::Set1F(0);
      AddBlock<kRows>([&codes](int k) { return codes[k]; }, Isa::Join(scales), min, x, b, y);
    }
    for (int r = 0; r < kRows; ++r) {
      Isa::StoreF(tile.out + (first + r) * tile.out_stride + o, y[r]);
    }
  }
  static I FromNibbles(I nibbles) {
    if constexpr (Format::kSigned) {
      const I codes = Isa::Lookup16(Format::kValues, nibbles);
      return kAdd128 ? Isa::Xor(codes, Isa::Set1(static_cast<int>(0x80808080))) : codes;
    } else {
      return nibbles;
    }
  }

  static void Run(const ProductTile& tile);
};

template <typename Isa, typename Format>
void Product256<Isa, Format>::Run(const ProductTile& tile) {
  if (tile.row_count <= Isa::kFewRows) {
    for (int o = 0; o < tile.outputs; o += 8) {
      const EightRows rows(tile, o);
      ForRowPieces<4>(tile.row_count, 0,
                      [&]<int kRows>(int r) { FewRows<kRows>(rows, tile, o, r); });
    }
    return;
  }
  auto* panel = reinterpret_cast<Panel*>(tile.scratch);
  Int8Row256 x[kMostTileRows];
  for (int r = 0; r < tile.row_count; ++r) x[r] = Int8Row256::At(tile.rows[r], tile.inputs);
  for (int o = 0; o < tile.outputs; o += kLanes) {
    for (int r = 0; r < tile.row_count; ++r) {
      for (int i = 0; i < kLanes; ++i) tile.out[r * tile.out_stride + o + i] = 0;
    }
    for (int64_t b = 0; b < tile.inputs / 256; ++b) {
      // The next block of these rows, or the first one of the next kLanes rows.
      const size_t ahead = (b + 1) * 256 < tile.inputs
                               ? sizeof(Block)
                               : kLanes * tile.weight_row_bytes - b * sizeof(Block);
      for (int lane = 0; lane < kLanes; lane += 8) {
        DecodeEight(EightRows(tile, o + lane), b, ahead, lane, panel);
      }
      ForRowPieces<Isa::kPanelRows>(tile.row_count, 0, [&]<int kRows>(int r) {
        Multiply<kRows>(*panel, x + r, b, tile.out + r * tile.out_stride + o, tile.out_stride);
      });
    }
  }
}

template <typename Isa, typename Format>
void Product32<Isa, Format>::Run(const ProductTile& tile) {
  if (tile.row_count <= Isa::kFewRows) {
    if constexpr (kNibbleCodes<Format>) {
      for (int o = 0; o < tile.outputs; o += kLanes) {
        ForRowPieces<4>(tile.row_count, 0,
                        [&]<int kRows>(int r) { NibbleRows<kRows>(tile, o, r); });
      }
      return;
    }
    for (int o = 0; o < tile.outputs; o += 8) {
      const EightRows rows(tile, o);
      ForRowPieces<4>(tile.row_count, 0,
                      [&]<int kRows>(int r) { FewRows<kRows>(rows, tile, o, r); });
    }
    return;
  }
  auto* panel = reinterpret_cast<Panel*>(tile.scratch);
  Int8Row32 x[kMostTileRows];
  for (int r = 0; r < tile.row_count; ++r) x[r] = Int8Row32::At(tile.rows[r], tile.inputs);
  const int64_t all_blocks = tile.inputs / 32;
  for (int o = 0; o < tile.outputs; o += kLanes) {
    for (int r = 0; r < tile.row_count; ++r) {
      for (int i = 0; i < kLanes; ++i) tile.out[r * tile.out_stride + o + i] = 0;
    }
    for (int64_t b = 0; b < all_blocks; b += 8) {
      const int blocks = static_cast<int>(all_blocks - b < 8 ? all_blocks - b : 8);
      // The next eight blocks of these rows, or the first ones of the next kLanes rows.
      const int64_t ahead = b + 8 < all_blocks ? 8 : kLanes * all_blocks - b;
      for (int lane = 0; lane < kLanes; lane += 8) {
        const EightRows rows(tile, o + lane);
        for (int r = 0; r < 8; ++r) {
          Prefetch(&rows.template At<Block>(r, b) + ahead, 8 * sizeof(Block));
        }
        for (int i = 0; i < blocks; ++i) DecodeEight(rows, b + i, lane, i, panel);
      }
      ForRowPieces<Isa::kPanelRows>(tile.row_count, 0, [&]<int kRows>(int r) {
        Multiply<kRows>(*panel, x + r, b, blocks, tile.out + r * tile.out_stride + o,
                        tile.out_stride);
      });
    }
  }
}

}  // namespace
}  // namespace strata::compute
