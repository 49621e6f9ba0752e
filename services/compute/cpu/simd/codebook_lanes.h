// Panels (panel256.h) of i-quants with the lookups of vbmi_lookup.h, with a weight row in each lane
// from the start: what is moved into lanes is the indices and signs of sixteen blocks, a quarter to
// a third of what their codes would be. For larger codebooks (IQ3_S, IQ2_S) the lookups are most of
// the work, and this is no faster than decoding blocks and moving their codes (codebook_vbmi.h).
//
// A vector of 32-bit words has four indices (bytes) or the 32 sign bits of each row's 32 weights.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "services/compute/cpu/simd/codebook_vbmi.h"
#include "services/compute/cpu/simd/int8_avx512.h"
#include "services/compute/cpu/simd/lane_formats.h"
#include "services/compute/cpu/simd/lane_product.h"
#include "services/compute/cpu/simd/vbmi_lookup.h"

namespace strata::compute {
namespace {

struct LaneBits {
  // Byte j of a word is the eight bits of it that begin at bit first + kEach j, around the word's
  // quadword.
  template <int kEach>
  static __m512i Fields(__m512i words, int first) {
    const auto at = [first](int j) { return (first + kEach * j) & 63; };
    return Vbmi::Fields(words, at(0), at(1), at(2), at(3), at(0) ^ 32, at(1) ^ 32, at(2) ^ 32,
                        at(3) ^ 32);
  }
  // 16 kQuads bytes of every row as words.
  template <int kQuads>
  static void Words(const LaneBlocks<Int8Avx512>& rows, size_t offset, __m512i* words) {
    for (int i = 0; i < kQuads; ++i) rows.FourWords(offset + 16 * i, words + 4 * i);
  }
};

// What sixteen blocks hold: kWords words of indices, whose bits above the eighth are masks, and the
// words of sign bits.
template <int kIndexWords>
struct LaneIndices {
  static constexpr int kWords = kIndexWords;
  __m512i low[kWords];
  __mmask64 high[kWords][Vbmi::kMostHigh];
  __m512i signs[8];
};

struct LanesIQ2XXS : WholeIQ2XXS {
  using Indices = LaneIndices<8>;
  static constexpr int kHigh = 0;
  static void Load(const LaneBlocks<Int8Avx512>& rows, Indices* to) {
    __m512i words[16];
    LaneBits::Words<4>(rows, offsetof(Block, qs), words);
    for (int i = 0; i < 8; ++i) {
      to->low[i] = words[2 * i];
      to->signs[i] = Signs::EvenBytes(LaneBits::Fields<7>(words[2 * i + 1], 0));
    }
  }
};

struct LanesIQ2XS : WholeIQ2XS {
  using Indices = LaneIndices<8>;
  static constexpr int kHigh = 1;
  static void Load(const LaneBlocks<Int8Avx512>& rows, Indices* to) {
    __m512i words[16];  // of two indices, with their signs above
    LaneBits::Words<4>(rows, offsetof(Block, qs), words);
    for (int i = 0; i < 8; ++i) {
      const __m512i a = words[2 * i];
      const __m512i b = words[2 * i + 1];
      // The low bytes of the four, and the others.
      to->low[i] = _mm512_permutex2var_epi8(a, Pick(0), b);
      const __m512i rest = _mm512_permutex2var_epi8(a, Pick(1), b);
      to->high[i][0] = _mm512_test_epi8_mask(rest, _mm512_set1_epi8(1));
      to->signs[i] = Signs::EvenBytes(_mm512_srli_epi16(rest, 1));
    }
  }
  // Bytes `first` and first + 2 of every word of two vectors, as words.
  static __m512i Pick(int first) {
    struct Places {
      alignas(64) uint8_t byte[64];
      constexpr Places() : byte() {
        for (int i = 0; i < 64; ++i) {
          byte[i] = static_cast<uint8_t>(i / 4 * 4 + i % 2 * 2 + i % 4 / 2 * 64);
        }
      }
    };
    static constexpr Places kPlaces;
    return _mm512_add_epi8(Vbmi::Load(kPlaces.byte), _mm512_set1_epi8(static_cast<char>(first)));
  }
};

struct LanesIQ3XXS : WholeIQ3XXS {
  using Indices = LaneIndices<16>;
  static constexpr int kHigh = 0;
  static void Load(const LaneBlocks<Int8Avx512>& rows, Indices* to) {
    LaneBits::Words<4>(rows, offsetof(Block, qs), to->low);
    LaneBits::Words<2>(rows, offsetof(Block, qs) + 64, to->signs);
    for (__m512i& signs : to->signs) signs = Signs::EvenBytes(LaneBits::Fields<7>(signs, 0));
  }
};

// WholeFormat with panels made like this.
template <typename Lanes>
struct LaneFormat : WholeFormat<Lanes> {
  static constexpr bool kInLanes = true;
  // Of block b of the tile's weight rows from number `first` on, calls put(step, codes) with the
  // codes plus 128 of weights 4 step and on of every row.
  template <typename Put>
  [[gnu::noinline]] static void DecodeLanes(const ProductTile& tile, int first, int64_t b,
                                            Put put) {
    const LaneRows<Int8Avx512> rows(tile, first);
    typename Lanes::Indices indices;
    Lanes::Load(rows.template At<typename Lanes::Block>(b), &indices);
    const auto& grid = Lanes::Grid();
    constexpr int kSteps = 64 / Lanes::Indices::kWords;  // of a word of indices
    constexpr int kAtOnce = 4;
    for (int w = 0; w < Lanes::Indices::kWords; w += kAtOnce) {
      __m512i low[kAtOnce];
      __mmask64 high[kAtOnce][Vbmi::kMostHigh];
      __m512i first_bytes[kAtOnce];
      __m512i second_bytes[kAtOnce];
      for (int i = 0; i < kAtOnce; ++i) {
        low[i] = indices.low[w + i];
        for (int j = 0; j < Lanes::kHigh; ++j) high[i][j] = indices.high[w + i][j];
      }
      Vbmi::Lookup<Lanes::kHigh>(grid.byte[0], low, high, first_bytes);
      Vbmi::Lookup<Lanes::kHigh>(grid.byte[1], low, high, second_bytes);
#pragma GCC unroll 4
      for (int i = 0; i < kAtOnce; ++i) {
        __m512i signs;
#pragma GCC unroll 8
        for (int s = 0; s < kSteps; ++s) {
          const int step = (w + i) * kSteps + s;
          // Codes with 128 added, of which zero minus them has 128 added again.
          __m512i code = _mm512_permutexvar_epi8(Levels<kSteps>(first_bytes[i], second_bytes[i], s),
                                                 Vbmi::Load(kLevelsPlus128.value));
          // A byte has the signs of two steps.
          if (s % 2 == 0) {
            signs = LaneBits::Fields<0>(indices.signs[step / 8], (i * kSteps + s) % 8 * 4);
          }
          const __m512i bits = _mm512_set1_epi32(s % 2 == 0 ? 0x08040201 : 0x80402010U);
          code = _mm512_mask_sub_epi8(code, _mm512_test_epi8_mask(signs, bits),
                                      _mm512_setzero_si512(), code);
          put(step, code);
        }
      }
    }
  }

 private:
  static constexpr LevelTable kLevelsPlus128 = Lanes::kLevels.Plus(-128);
  // The four levels of step s of a word, each in the low bits of a byte. Entries of eight weights
  // are two bits each in bytes for four, entries of four weights four bits each.
  template <int kSteps>
  static __m512i Levels(__m512i first, __m512i second, int s) {
    if constexpr (kSteps == 8) {
      return LaneBits::Fields<2>(s % 2 == 0 ? first : second, s / 2 * 8);
    } else {
      const __m512i at = LaneOffsets(s * 8);
      return _mm512_mask_multishift_epi64_epi8(_mm512_multishift_epi64_epi8(at, first),
                                               _cvtu64_mask64(0xcccccccccccccccc), at, second);
    }
  }
  static __m512i LaneOffsets(int first) {
    return Vbmi::Offsets(first, first + 4, first, first + 4, first + 32, first + 36, first + 32,
                         first + 36);
  }
};

}  // namespace
}  // namespace strata::compute
