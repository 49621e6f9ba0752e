// The i-quants of one bit (codebook.h): IQ1_S and IQ1_M.
//
// Their codes are 8 grid + shift, with grid -1, 0 or 1 and a shift of 1 or -1. As factors of
// products they are unsigned, grid + 1 or eight times that, and what they exceed the codes by goes
// off with the sums of the activations.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/quant/blocks.h"
#include "common/quant/codebooks.h"
#include "services/compute/cpu/simd/codebook.h"
#include "services/compute/cpu/simd/intrinsics.h"
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

struct FormatIQ1S : CodebookFormat {
  using Block = quant::BlockIQ1_S;
  static constexpr int kGroup = 32;
  static constexpr int kLargest = 9;
  static __m256 D(const std::byte* const* blocks) { return Codebook::HalvesTimes(blocks, 0.125f); }
  static __m128i Scales(const Block& b) {
    const __m128i s = _mm_and_si128(_mm_srli_epi16(Bytes::Load16(b.qh), 12), _mm_set1_epi16(7));
    const __m128i odd = _mm_or_si128(_mm_add_epi16(s, s), _mm_set1_epi16(1));
    return _mm_packs_epi16(odd, odd);
  }
  // Word i of the result is word number first + i / 4 of `x`.
  static __m256i RepeatWords(__m128i x, int first) {
    const __m256i pick = _mm256_setr_epi64x(0x0100010001000100, 0x0302030203020302,
                                            0x0504050405040504, 0x0706070607060706);
    return _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(x),
        _mm256_add_epi8(pick, _mm256_set1_epi8(static_cast<int8_t>(2 * first))));
  }
  struct Parts {
    static constexpr bool kSigned = false;
    static constexpr int kBatch = kCodebookBatch;
    static constexpr int kTimes = 8;  // Size() is an eighth of a code's part
    alignas(32) uint16_t index[32];
    __m128i excess;  // 8 - shift, by group
    void Load(const Block& b) {
      // Three bits an index: those of four indices in a word, moved to bits 8 to 10 by factors of
      // 2^8, 2^5, 2^2 and, what no factor does, 2^-1.
      const __m128i qh = Bytes::Load16(b.qh);
      const __m256i left = _mm256_set1_epi64x(0x0000000400200100);
      for (int i = 0; i < 2; ++i) {
        const __m256i words = RepeatWords(qh, 4 * i);
        const __m256i high =
            _mm256_blend_epi16(_mm256_mullo_epi16(words, left), _mm256_srli_epi16(words, 1), 0x88);
        Indices16::Store(b.qs + 16 * i, _mm256_and_si256(high, _mm256_set1_epi16(0x700)),
                         index + 16 * i);
      }
      excess = _mm_add_epi16(_mm_set1_epi16(7), _mm_slli_epi16(_mm_srli_epi16(qh, 15), 1));
    }
    __m256i Size(int g) const {
      return _mm256_add_epi8(Codebook::Entries(quant::kIq1SGrid, index + 4 * g),
                             _mm256_set1_epi8(1));
    }
    __m128i Offsets(__m128i scales) const {
      return _mm_mullo_epi16(_mm_cvtepi8_epi16(scales), excess);
    }
    // Bytes of 8 grid + shift.
    __m256i Codes(int g) const {
      alignas(16) int16_t less[8];
      _mm_store_si128(reinterpret_cast<__m128i*>(less), excess);
      return _mm256_sub_epi8(_mm256_slli_epi16(Size(g), 3),
                             _mm256_set1_epi8(static_cast<int8_t>(less[g])));
    }
  };
};

struct FormatIQ1M : CodebookFormat {
  using Block = quant::BlockIQ1_M;
  static constexpr int kGroup = 16;
  static constexpr int kLargest = 9;
  // The scale's sixteen bits are the top nibbles of the four words of `scales`: from bits 12, 28,
  // 44 and 60 to 48, 52, 56 and 60 by factors of 2^36, 2^24, 2^12 and 1. What else these bring is
  // lower.
  static __m256 D(const std::byte* const* blocks) {
    const auto half = [&](int r) {
      uint64_t words;
      std::memcpy(&words, reinterpret_cast<const Block*>(blocks[r])->scales, sizeof(words));
      return static_cast<int16_t>((words & 0xf000f000f000f000) * 0x1001001001 >> 48);
    };
    const __m128i d =
        _mm_setr_epi16(half(0), half(1), half(2), half(3), half(4), half(5), half(6), half(7));
    return _mm256_mul_ps(_mm256_cvtph_ps(d), _mm256_set1_ps(0.125f));
  }
  static __m128i Scales(const Block& b) {
    // Four times three bits in each of four words: as doublewords, shifted to the lowest byte.
    const __m128i words =
        _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b.scales)));
    const __m128i seven = _mm_set1_epi32(7);
    const __m128i first = _mm_and_si128(words, seven);
    const __m128i second = _mm_slli_epi32(_mm_and_si128(_mm_srli_epi32(words, 3), seven), 8);
    const __m128i third = _mm_slli_epi32(_mm_and_si128(_mm_srli_epi32(words, 6), seven), 16);
    const __m128i fourth = _mm_slli_epi32(_mm_and_si128(_mm_srli_epi32(words, 9), seven), 24);
    const __m128i s = _mm_or_si128(_mm_or_si128(first, second), _mm_or_si128(third, fourth));
    return _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1));
  }
  struct Parts {
    static constexpr bool kSigned = false;
    static constexpr int kBatch = kCodebookBatch;
    static constexpr int kTimes = 1;
    alignas(32) uint16_t index[32];
    alignas(32) uint16_t up[32];  // of every entry: the shift plus 1, 0 or 2, in both bytes
    void Load(const Block& b) {
      // Three bits an index and, above, one that says that its shift is -1: two of each in a byte,
      // moved to bits 8 to 11 by factors of 2^8 and 2^4.
      const __m128i qh = Bytes::Load16(b.qh);
      for (int i = 0; i < 2; ++i) {
        const __m256i bytes = Indices16::RepeatBytes<2>(qh, 8 * i);
        const __m256i fields = _mm256_mullo_epi16(bytes, _mm256_set1_epi32(0x00100100));
        Indices16::Store(b.qs + 16 * i, _mm256_and_si256(fields, _mm256_set1_epi16(0x700)),
                         index + 16 * i);
        const __m256i down = _mm256_set1_epi16(0x800);
        const __m256i is_down = _mm256_cmpeq_epi16(_mm256_and_si256(fields, down), down);
        Indices16::Store(up + 16 * i, _mm256_andnot_si256(is_down, _mm256_set1_epi16(0x0202)));
      }
    }
    // 8 (grid + 1) + (0 or 2), the code plus 9.
    __m256i Size(int g) const {
      const __m256i v =
          _mm256_add_epi8(Codebook::Entries(quant::kIq1SGrid, index + 4 * g), _mm256_set1_epi8(1));
      int64_t four;
      std::memcpy(&four, up + 4 * g, sizeof(four));
      const __m256i shift = _mm256_shuffle_epi8(
          _mm256_set1_epi64x(four),
          _mm256_setr_epi64x(0, 0x0202020202020202, 0x0404040404040404, 0x0606060606060606));
      return _mm256_add_epi8(_mm256_slli_epi16(v, 3), shift);
    }
    __m256i Offsets(__m128i scales) const {
      return _mm256_mullo_epi16(_mm256_cvtepi8_epi16(scales), _mm256_set1_epi16(9));
    }
    __m256i Codes(int g) const { return _mm256_sub_epi8(Size(g), _mm256_set1_epi8(9)); }
  };
};

}  // namespace
}  // namespace strata::compute
