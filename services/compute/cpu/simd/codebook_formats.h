// Formats of 256 weights whose codes are entries of a codebook (i-quants), and the ternary TQ2_0;
// weight_formats.h explains the interface. Fractions in the formats' scales, (0.5 + s) / 4 and the
// like, become integer scales 2 s + 1 with a smaller d; powers of two, so nothing is rounded.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/quant/blocks.h"
#include "common/quant/codebooks.h"
#include "services/compute/cpu/simd/intrinsics.h"
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

// The masks of eight signs by their seven-bit index: the eighth makes the number of signs even.
struct EvenSignMasks {
  uint64_t mask[128];
  constexpr EvenSignMasks() : mask() {
    for (int i = 0; i < 128; ++i) {
      int parity = 0;
      for (int bit = 0; bit < 7; ++bit) {
        if ((i >> bit & 1) == 0) continue;
        mask[i] |= uint64_t{0xff} << 8 * bit;
        parity ^= 1;
      }
      if (parity != 0) mask[i] |= uint64_t{0xff} << 56;
    }
  }
};
inline constexpr EvenSignMasks kEvenSigns;

struct Codebook {
  static uint32_t Load2(const void* p) {
    uint16_t x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  // The signs of four times eight weights, bytes of 0 or 255, from four 7-bit sign indices.
  static __m256i EvenSigns(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return Entries(kEvenSigns.mask, a, b, c, d);
  }
  static __m256i EvenSigns(uint32_t word) {  // four indices from bit 0 up
    return EvenSigns(word & 127, word >> 7 & 127, word >> 14 & 127, word >> 21 & 127);
  }
  // -x where the byte is 255.
  static __m256i Negate(__m256i x, __m256i set) {
    return _mm256_sub_epi8(_mm256_xor_si256(x, set), set);
  }
  static __m256i Entries(const uint64_t* grid, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return _mm256_setr_epi64x(static_cast<int64_t>(grid[a]), static_cast<int64_t>(grid[b]),
                              static_cast<int64_t>(grid[c]), static_cast<int64_t>(grid[d]));
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
  static __m256 HalvesTimes(const std::byte* const* blocks, float factor) {
    return _mm256_mul_ps(Bytes::Halves(blocks, 0), _mm256_set1_ps(factor));
  }
};

// What the formats here have in common.
struct CodebookFormat {
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = true;
  static constexpr bool kMins = false;
};

struct FormatIQ2XXS : CodebookFormat {
  using Block = quant::BlockIQ2_XXS;
  static constexpr int kGroup = 32;
  static constexpr int kHeadroom = 2;  // codes reach 43
  static __m256 D(const std::byte* const* blocks) { return Codebook::HalvesTimes(blocks, 0.125f); }
  static __m128i Scales(const Block& b) {  // every second word ends in a scale
    const __m256i low = Bytes::Load(b.qs);
    const __m256i high = Bytes::Load(b.qs + 16);
    const __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(
        _mm256_castsi256_ps(low), _mm256_castsi256_ps(high), 0xdd));  // words 1 3 | 1 3 of lanes
    return Codebook::TopScales(_mm256_permute4x64_epi64(odd, 0xd8));
  }
  static __m256i Codes(const Block& b, int g) {
    const auto* index = reinterpret_cast<const uint8_t*>(b.qs + 4 * g);
    const __m256i v = Codebook::Entries(quant::kIq2XxsGrid, index[0], index[1], index[2], index[3]);
    return Codebook::Negate(v, Codebook::EvenSigns(Bytes::Load4(b.qs + 4 * g + 2)));
  }
};

struct FormatIQ2XS : CodebookFormat {
  using Block = quant::BlockIQ2_XS;
  static constexpr int kGroup = 16;
  static constexpr int kHeadroom = 2;
  static __m256 D(const std::byte* const* blocks) { return Codebook::HalvesTimes(blocks, 0.125f); }
  static __m128i Scales(const Block& b) {
    return Codebook::OddScales(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b.scales)));
  }
  static __m256i Codes(const Block& b, int g) {
    uint32_t q[4];
    for (int l = 0; l < 4; ++l) q[l] = Codebook::Load2(b.qs + 4 * g + l);
    const __m256i v =
        Codebook::Entries(quant::kIq2XsGrid, q[0] & 511, q[1] & 511, q[2] & 511, q[3] & 511);
    return Codebook::Negate(v, Codebook::EvenSigns(q[0] >> 9, q[1] >> 9, q[2] >> 9, q[3] >> 9));
  }
};

struct FormatIQ2S : CodebookFormat {
  using Block = quant::BlockIQ2_S;
  static constexpr int kGroup = 16;
  static constexpr int kHeadroom = 2;
  static __m256 D(const std::byte* const* blocks) { return Codebook::HalvesTimes(blocks, 0.125f); }
  static __m128i Scales(const Block& b) {
    return Codebook::OddScales(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b.scales)));
  }
  static __m256i Codes(const Block& b, int g) {
    const uint8_t* q = b.qs + 4 * g;
    const uint32_t high = b.qh[g];
    const __m256i v =
        Codebook::Entries(quant::kIq2SGrid, q[0] | (high << 8 & 0x300), q[1] | (high << 6 & 0x300),
                          q[2] | (high << 4 & 0x300), q[3] | (high << 2 & 0x300));
    return Codebook::Negate(v, Bytes::SetBits(Bytes::Load4(b.qs + 32 + 4 * g)));
  }
};

struct FormatIQ3XXS : CodebookFormat {
  using Block = quant::BlockIQ3_XXS;
  static constexpr int kGroup = 32;
  static constexpr int kHeadroom = 2;  // codes reach 62
  static __m256 D(const std::byte* const* blocks) { return Codebook::HalvesTimes(blocks, 0.25f); }
  static __m128i Scales(const Block& b) { return Codebook::TopScales(Bytes::Load(b.qs + 64)); }
  static __m256i Codes(const Block& b, int g) {
    const uint8_t* q = b.qs + 8 * g;
    const auto entry = [q](int i) { return static_cast<int>(quant::kIq3XxsGrid[q[i]]); };
    const __m256i v = _mm256_setr_epi32(entry(0), entry(1), entry(2), entry(3), entry(4), entry(5),
                                        entry(6), entry(7));
    return Codebook::Negate(v, Codebook::EvenSigns(Bytes::Load4(b.qs + 64 + 4 * g)));
  }
};

struct FormatIQ3S : CodebookFormat {
  using Block = quant::BlockIQ3_S;
  static constexpr int kGroup = 32;
  static constexpr int kHeadroom = 8;  // codes reach 15
  static __m256 D(const std::byte* const* blocks) { return Bytes::Halves(blocks, 0); }
  static __m128i Scales(const Block& b) {
    return Codebook::OddScales(_mm_cvtsi32_si128(static_cast<int>(Bytes::Load4(b.scales))));
  }
  static __m256i Codes(const Block& b, int g) {
    // Eight low bytes with a bit of qh above each.
    const __m128i bit = _mm_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128);
    const __m128i set =
        _mm_cmpeq_epi16(_mm_and_si128(_mm_set1_epi16(static_cast<int16_t>(b.qh[g])), bit), bit);
    const __m128i low =
        _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b.qs + 8 * g)));
    alignas(16) uint16_t index[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(index),
                    _mm_or_si128(low, _mm_and_si128(set, _mm_set1_epi16(0x100))));
    const auto entry = [&index](int i) { return static_cast<int>(quant::kIq3SGrid[index[i]]); };
    const __m256i v = _mm256_setr_epi32(entry(0), entry(1), entry(2), entry(3), entry(4), entry(5),
                                        entry(6), entry(7));
    return Codebook::Negate(v, Bytes::SetBits(Bytes::Load4(b.signs + 4 * g)));
  }
};

// The IQ1 codes are 8 grid + shift, with the shift 1 or -1.
struct FormatIQ1S : CodebookFormat {
  using Block = quant::BlockIQ1_S;
  static constexpr int kGroup = 32;
  static constexpr int kHeadroom = 8;  // codes reach 9
  static __m256 D(const std::byte* const* blocks) { return Codebook::HalvesTimes(blocks, 0.125f); }
  static __m128i Scales(const Block& b) {
    const __m128i s = _mm_and_si128(_mm_srli_epi16(Bytes::Load16(b.qh), 12), _mm_set1_epi16(7));
    const __m128i odd = _mm_or_si128(_mm_add_epi16(s, s), _mm_set1_epi16(1));
    return _mm_packs_epi16(odd, odd);
  }
  static __m256i Codes(const Block& b, int g) {
    const uint8_t* q = b.qs + 4 * g;
    const uint32_t qh = Codebook::Load2(b.qh + g);
    const __m256i v =
        Codebook::Entries(quant::kIq1SGrid, q[0] | (qh << 8 & 0x700), q[1] | (qh << 5 & 0x700),
                          q[2] | (qh << 2 & 0x700), q[3] | (qh >> 1 & 0x700));
    const __m256i shift = _mm256_set1_epi8((qh >> 15) != 0 ? -1 : 1);
    return _mm256_add_epi8(Times8(v), shift);
  }
  static __m256i Times8(__m256i v) {  // bytes of -1, 0, 1
    const __m256i two = _mm256_add_epi8(v, v);
    const __m256i four = _mm256_add_epi8(two, two);
    return _mm256_add_epi8(four, four);
  }
};

struct FormatIQ1M : CodebookFormat {
  using Block = quant::BlockIQ1_M;
  static constexpr int kGroup = 16;
  static constexpr int kHeadroom = 4;
  // The scale's sixteen bits are the top nibbles of the four words of `scales`.
  static __m256 D(const std::byte* const* blocks) {
    uint16_t half[8];
    for (int r = 0; r < 8; ++r) {
      const auto& b = *reinterpret_cast<const Block*>(blocks[r]);
      const uint32_t d = (b.scales[1] >> 4) | (b.scales[3] >> 4) << 4 | (b.scales[5] >> 4) << 8 |
                         (b.scales[7] >> 4) << 12;
      half[r] = static_cast<uint16_t>(d);
    }
    return _mm256_mul_ps(_mm256_cvtph_ps(Bytes::Load16(half)), _mm256_set1_ps(0.125f));
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
  static __m256i Codes(const Block& b, int g) {
    const uint8_t* q = b.qs + 4 * g;
    const uint32_t qh = Codebook::Load2(b.qh + 2 * g);
    const __m256i v =
        Codebook::Entries(quant::kIq1SGrid, q[0] | (qh << 8 & 0x700), q[1] | (qh << 4 & 0x700),
                          q[2] | (qh & 0x700), q[3] | (qh >> 4 & 0x700));
    // The top bits of the four nibbles say where the shift is -1.
    const __m256i bit = _mm256_setr_epi64x(0x8, 0x80, 0x800, 0x8000);
    const __m256i down = _mm256_cmpeq_epi64(
        _mm256_and_si256(_mm256_set1_epi64x(static_cast<int64_t>(qh)), bit), bit);
    return _mm256_add_epi8(FormatIQ1S::Times8(v), _mm256_or_si256(down, _mm256_set1_epi8(1)));
  }
};

struct FormatTQ20 : CodebookFormat {
  using Block = quant::BlockTQ2_0;
  static constexpr int kGroup = 32;
  static constexpr int kHeadroom = 8;
  static __m256 D(const std::byte* const* blocks) { return Bytes::Halves(blocks, 64); }
  static __m128i Scales(const Block& /*block*/) { return _mm_set1_epi8(1); }
  static __m256i Codes(const Block& b, int g) {
    return _mm256_sub_epi8(Bytes::Field(Bytes::Load(b.qs + g / 4 * 32), g % 4 * -2, 3),
                           _mm256_set1_epi8(1));
  }
};

}  // namespace
}  // namespace strata::compute
