// What formats of 256 weights whose codes are entries of a codebook (i-quants) have in common.
//
// A block is taken apart for all of its codes at once: vector instructions make the indices and
// signs of 256 weights, so that an entry of a codebook costs a load of its index and one of itself.
// Such a format has, instead of Codes() (weight_formats.h), a type Parts, which Load() fills from a
// block, which must stay where it is, and which then gives, for every 32 codes,
//   Codes(g):         the codes, signed;
//   Size(g), Sign(g): their magnitudes and bytes of 1 or -1, if Parts::kSigned;
//   Size(g):          otherwise, what is multiplied instead of the codes: a code is
//                     kTimes * Size - excess, and Offsets(scales) are the products of each group's
//                     scale and excess, by which the sums of activations are multiplied.
#pragma once

#include <cstdint>

#include "services/compute/cpu/simd/intrinsics.h"
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

// So many blocks of a row are taken apart before the first of them is multiplied. A lookup waits
// for its index to pass through memory, and what waits for it fills the processor's queues, so that
// it does not reach the next block's indices: with one block at a time IQ1_S does 15 instead of 21
// Gw/s, with 4 or 32 nearly as much as with 8.
inline constexpr int kCodebookBatch = 8;

struct CodebookFormat {
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = true;
  static constexpr bool kMins = false;
};

// Of a block whose codes have magnitudes and signs.
template <typename Self>
struct SignedParts {
  static constexpr bool kSigned = true;
  static constexpr int kBatch = kCodebookBatch;
  __m256i Codes(int g) const {
    const auto& self = static_cast<const Self&>(*this);
    return _mm256_sign_epi8(self.Size(g), self.Sign(g));
  }
};

struct Signs8 {
  // Bytes of 1 or -1 from 32 bits.
  static __m256i FromBits(const uint8_t* bits) {
    return _mm256_or_si256(Bytes::SetBits(Bytes::Load4(bits)), _mm256_set1_epi8(1));
  }
  // Eight sign bits from each 7-bit sign index: the eighth makes the number of set ones even, so it
  // is the parity of the seven, which is that of both halves' parities. `odd` has 128 where a
  // number below 16 has an odd number of set bits.
  static __m256i Even(__m256i indices) {
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i low = _mm256_shuffle_epi8(odd, Bytes::Field(indices, 0, 15));
    const __m256i high = _mm256_shuffle_epi8(odd, Bytes::Field(indices, -4, 15));
    return _mm256_or_si256(indices, _mm256_xor_si256(low, high));
  }
  // From eight words of four sign indices each, in the bits from 0, 7, 14 and 21 up.
  static __m256i FromWords(__m256i words) {
    const auto field = [words](int left, int mask) {
      return _mm256_and_si256(_mm256_slli_epi32(words, left), _mm256_set1_epi32(mask));
    };
    return Even(_mm256_or_si256(_mm256_or_si256(field(0, 0x7f), field(1, 0x7f00)),
                                _mm256_or_si256(field(2, 0x7f0000), field(3, 0x7f000000))));
  }
};

// 16-bit indices: a byte of the block, and bits above it.
struct Indices16 {
  static void Store(void* to, __m256i x) { _mm256_store_si256(static_cast<__m256i*>(to), x); }
  // 16 of them, whose bytes lie at `low`; `high` has the bits where they belong.
  static void Store(const uint8_t* low, __m256i high, uint16_t* index) {
    Store(index, _mm256_or_si256(_mm256_cvtepu8_epi16(Bytes::Load16(low)), high));
  }
  // Word i of the result is byte number first + i / kEach of `x`.
  template <int kEach>
  static __m256i RepeatBytes(__m128i x, int first) {
    const auto byte = [](int i) { return static_cast<int16_t>(0x8000 | i / kEach); };
    const __m256i pick = _mm256_setr_epi16(byte(0), byte(1), byte(2), byte(3), byte(4), byte(5),
                                           byte(6), byte(7), byte(8), byte(9), byte(10), byte(11),
                                           byte(12), byte(13), byte(14), byte(15));
    return _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(x),
        _mm256_add_epi16(pick, _mm256_set1_epi16(static_cast<int16_t>(first))));
  }
};

struct Codebook {
  // 32 codes: four entries of eight, or eight of four.
  template <typename Index>
  static __m256i Entries(const uint64_t* grid, const Index* index) {
    const auto entry = [&](int i) { return static_cast<int64_t>(grid[index[i]]); };
    return _mm256_setr_epi64x(entry(0), entry(1), entry(2), entry(3));
  }
  template <typename Index>
  static __m256i Entries(const uint32_t* grid, const Index* index) {
    const auto entry = [&](int i) { return static_cast<int>(grid[index[i]]); };
    return _mm256_setr_epi32(entry(0), entry(1), entry(2), entry(3), entry(4), entry(5), entry(6),
                             entry(7));
  }

  // Fractions in the formats' scales, (0.5 + s) / 4 and the like, become integer scales 2 s + 1
  // with a smaller d; powers of two, so nothing is rounded.
  static __m256 HalvesTimes(const std::byte* const* blocks, float factor) {
    return _mm256_mul_ps(Bytes::Halves(blocks, 0), _mm256_set1_ps(factor));
  }
  // Sixteen nibbles, low half of a byte first, as the scales 2 s + 1.
  static __m128i OddScales(__m128i bytes) {
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i s = _mm_unpacklo_epi8(_mm_and_si128(bytes, mask),
                                        _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
    return _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1));
  }
  // The top four bits of eight words as the scales 2 s + 1.
  static __m128i TopScales(__m256i words) {
    const __m256i odd =
        _mm256_or_si256(_mm256_slli_epi32(_mm256_srli_epi32(words, 28), 1), _mm256_set1_epi32(1));
    const __m128i pairs =
        _mm_packs_epi32(_mm256_castsi256_si128(odd), _mm256_extracti128_si256(odd, 1));
    return _mm_packs_epi16(pairs, pairs);
  }
};

}  // namespace
}  // namespace strata::compute
