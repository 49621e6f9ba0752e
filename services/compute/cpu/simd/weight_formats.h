// How the codes and scales of quantised weights are read with 256-bit instructions.
//
// A format of 256 weights ("super-block") has weights d * s[g] * c - dmin * m[g], with integer
// codes c, integer scales s and, if kMins, minima m for groups of kGroup weights. A format of 32
// has weights d * c + m. Codes come 32 at a time in the order of the weights:
//   unsigned formats: Codes() are bytes below 128 and c = code - kOffset;
//   signed formats:   Codes() are c itself.
// kHeadroom is how many (code x activation) pair sums fit into 16 bits: 32767 / (2 * 127 *
// largest). Signed formats of 256 say instead how large |c| gets (kLargest).
//
// Everything lies in an unnamed namespace: translation units for different processors include this
// header, and the linker must not take one's code for the other.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "common/quant/blocks.h"
#include "common/quant/values4.h"
#include "services/compute/cpu/simd/intrinsics.h"

namespace strata::compute {
namespace {

struct Bytes {
  static __m256i Load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static __m128i Load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static uint32_t Load4(const void* p) {
    uint32_t x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  // x shifted left (positive) or right within 16 bits, then masked: moves a bit field of each byte.
  static __m256i Field(__m256i x, int left, int mask) {
    const __m256i shifted = left >= 0 ? _mm256_slli_epi16(x, left) : _mm256_srli_epi16(x, -left);
    return _mm256_and_si256(shifted, _mm256_set1_epi8(static_cast<char>(mask)));
  }
  // 16 bytes to 32 codes: the low halves, then the high halves.
  static __m256i Nibbles(const uint8_t* p) {
    const __m128i x = Load16(p);
    const __m256i both =
        _mm256_inserti128_si256(_mm256_castsi128_si256(x), _mm_srli_epi16(x, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
  }
  static __m256i Lookup(const int8_t* table, __m256i index) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(Load16(table)), index);
  }
  // 32 bits to 32 bytes of 0 or 255.
  static __m256i SetBits(uint32_t bits) {
    const __m256i spread = _mm256_shuffle_epi8(
        _mm256_set1_epi32(static_cast<int>(bits)),
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
    const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
  }
  // 32 bits to 32 bytes of 0 or 16.
  static __m256i FifthBits(const void* p) {
    return _mm256_and_si256(SetBits(Load4(p)), _mm256_set1_epi8(16));
  }
  // The half-precision field at `offset` of eight blocks.
  static __m256 Halves(const std::byte* const* blocks, size_t offset) {
    const auto half = [&](int r) {
      uint16_t x;
      std::memcpy(&x, blocks[r] + offset, sizeof(x));
      return static_cast<int16_t>(x);
    };
    return _mm256_cvtph_ps(
        _mm_setr_epi16(half(0), half(1), half(2), half(3), half(4), half(5), half(6), half(7)));
  }
};

// ---- 256 weights -----------------------------------------------------------------------------

// Eight 6-bit scales (bytes 0-7) and eight minima (bytes 8-15) of Q4_K and Q5_K.
struct KScaleBytes {
  static __m128i Unpack(const uint8_t* packed) {  // reads 16 bytes; 12 are used
    const __m128i x = Bytes::Load16(packed);
    const __m128i low = _mm_and_si128(x, _mm_set1_epi8(63));
    const __m128i third = _mm_srlv_epi32(_mm_shuffle_epi32(x, 0xaa), _mm_setr_epi32(0, 4, 0, 0));
    const __m128i high = _mm_or_si128(_mm_and_si128(third, _mm_set1_epi8(15)),
                                      _mm_and_si128(_mm_srli_epi32(x, 2), _mm_set1_epi8(0x30)));
    return _mm_unpacklo_epi32(low, high);
  }
};

struct FormatQ4K {
  using Block = quant::BlockQ4_K;
  static constexpr int kGroup = 32;
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = false;
  static constexpr bool kMins = true;
  static constexpr int kHeadroom = 8;
  static __m256 D(const std::byte* const* blocks) { return Bytes::Halves(blocks, 0); }
  static __m256 Dmin(const std::byte* const* blocks) { return Bytes::Halves(blocks, 2); }
  static __m128i Scales(const Block& b) { return KScaleBytes::Unpack(b.scales); }
  static __m128i Mins(const Block& b) { return _mm_srli_si128(Scales(b), 8); }
  static __m256i Codes(const Block& b, int g) {
    return Bytes::Field(Bytes::Load(b.qs + g / 2 * 32), g % 2 * -4, 15);
  }
};

struct FormatQ5K {
  using Block = quant::BlockQ5_K;
  static constexpr int kGroup = 32;
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = false;
  static constexpr bool kMins = true;
  static constexpr int kHeadroom = 4;
  static __m256 D(const std::byte* const* blocks) { return Bytes::Halves(blocks, 0); }
  static __m256 Dmin(const std::byte* const* blocks) { return Bytes::Halves(blocks, 2); }
  static __m128i Scales(const Block& b) { return KScaleBytes::Unpack(b.scales); }
  static __m128i Mins(const Block& b) { return _mm_srli_si128(Scales(b), 8); }
  static __m256i Codes(const Block& b, int g) {
    return _mm256_or_si256(Bytes::Field(Bytes::Load(b.qs + g / 2 * 32), g % 2 * -4, 15),
                           Bytes::Field(Bytes::Load(b.qh), 4 - g, 16));
  }
};

struct FormatQ6K {
  using Block = quant::BlockQ6_K;
  static constexpr int kGroup = 16;
  static constexpr int kOffset = 32;
  static constexpr bool kSigned = false;
  static constexpr bool kMins = false;
  static constexpr int kHeadroom = 2;
  static __m256 D(const std::byte* const* blocks) { return Bytes::Halves(blocks, 208); }
  static __m128i Scales(const Block& b) { return Bytes::Load16(b.scales); }
  static __m256i Codes(const Block& b, int g) {
    const int k = g % 4;
    return _mm256_or_si256(
        Bytes::Field(Bytes::Load(b.ql + g / 4 * 64 + k % 2 * 32), k / 2 * -4, 15),
        Bytes::Field(Bytes::Load(b.qh + g / 4 * 32), 4 - 2 * k, 0x30));
  }
};

struct FormatQ2K {
  using Block = quant::BlockQ2_K;
  static constexpr int kGroup = 16;
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = false;
  static constexpr bool kMins = true;
  static constexpr int kHeadroom = 4;  // all of a group
  static __m256 D(const std::byte* const* blocks) { return Bytes::Halves(blocks, 80); }
  static __m256 Dmin(const std::byte* const* blocks) { return Bytes::Halves(blocks, 82); }
  static __m128i Scales(const Block& b) {
    return _mm_and_si128(Bytes::Load16(b.scales), _mm_set1_epi8(15));
  }
  static __m128i Mins(const Block& b) {
    return _mm_and_si128(_mm_srli_epi16(Bytes::Load16(b.scales), 4), _mm_set1_epi8(15));
  }
  static __m256i Codes(const Block& b, int g) {
    return Bytes::Field(Bytes::Load(b.qs + g / 4 * 32), g % 4 * -2, 3);
  }
};

struct FormatQ3K {
  using Block = quant::BlockQ3_K;
  static constexpr int kGroup = 16;
  static constexpr int kOffset = 4;
  static constexpr bool kSigned = false;
  static constexpr bool kMins = false;
  static constexpr int kHeadroom = 4;
  static __m256 D(const std::byte* const* blocks) { return Bytes::Halves(blocks, 108); }
  static __m128i Scales(const Block& b) {
    const __m128i nibbles = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(b.scales));
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i low = _mm_unpacklo_epi64(_mm_and_si128(nibbles, mask),
                                           _mm_and_si128(_mm_srli_epi16(nibbles, 4), mask));
    const __m128i pairs = _mm_srlv_epi32(
        _mm_set1_epi32(static_cast<int>(Bytes::Load4(b.scales + 8))), _mm_setr_epi32(0, 2, 4, 6));
    const __m128i high = _mm_slli_epi16(_mm_and_si128(pairs, _mm_set1_epi8(3)), 4);
    return _mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32));
  }
  static __m256i Codes(const Block& b, int g) {
    return _mm256_or_si256(Bytes::Field(Bytes::Load(b.qs + g / 4 * 32), g % 4 * -2, 3),
                           Bytes::Field(Bytes::Load(b.hmask), 2 - g, 4));
  }
};

struct FormatIQ4XS {
  using Block = quant::BlockIQ4_XS;
  static constexpr int kGroup = 32;
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = true;
  static constexpr bool kMins = false;
  static constexpr int kLargest = 127;
  static __m256 D(const std::byte* const* blocks) { return Bytes::Halves(blocks, 0); }
  static __m128i Scales(const Block& b) {
    const __m128i bytes = _mm_cvtsi32_si128(static_cast<int>(Bytes::Load4(b.scales_l)));
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i low = _mm_unpacklo_epi8(_mm_and_si128(bytes, mask),
                                          _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
    const __m256i pairs =
        _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(b.scales_h),
                                           _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14)),
                         _mm256_set1_epi32(3));
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    const __m128i high = _mm_slli_epi16(_mm_packs_epi16(words, words), 4);
    return _mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32));
  }
  static __m256i Codes(const Block& b, int g) {
    return Bytes::Lookup(quant::kIq4NlValues, Bytes::Nibbles(b.qs + g * 16));
  }
};

struct FormatTQ20 {
  using Block = quant::BlockTQ2_0;
  static constexpr int kGroup = 32;
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = true;
  static constexpr bool kMins = false;
  static constexpr int kLargest = 1;
  static __m256 D(const std::byte* const* blocks) { return Bytes::Halves(blocks, 64); }
  static __m128i Scales(const Block& /*block*/) { return _mm_set1_epi8(1); }
  static __m256i Codes(const Block& b, int g) {
    return _mm256_sub_epi8(Bytes::Field(Bytes::Load(b.qs + g / 4 * 32), g % 4 * -2, 3),
                           _mm256_set1_epi8(1));
  }
};

// ---- 32 weights ------------------------------------------------------------------------------

struct FormatQ80 {
  using Block = quant::BlockQ8_0;
  static constexpr int kGroup = 32;
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = true;
  static constexpr bool kMins = false;
  static constexpr int kHeadroom = 1;
  static __m256i Codes(const Block& b) { return Bytes::Load(b.qs); }
  static __m256 Scales(const std::byte* const* blocks) { return Bytes::Halves(blocks, 0); }
};

struct FormatQ50 {
  using Block = quant::BlockQ5_0;
  static constexpr int kGroup = 32;
  static constexpr int kOffset = 16;
  static constexpr bool kSigned = false;
  static constexpr bool kMins = false;
  static constexpr int kHeadroom = 4;
  static __m256i Codes(const Block& b) {
    return _mm256_or_si256(Bytes::Nibbles(b.qs), Bytes::FifthBits(b.qh));
  }
  static __m256 Scales(const std::byte* const* blocks) { return Bytes::Halves(blocks, 0); }
};

struct FormatQ51 {
  using Block = quant::BlockQ5_1;
  static constexpr int kGroup = 32;
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = false;
  static constexpr bool kMins = true;
  static constexpr int kHeadroom = 4;
  static __m256i Codes(const Block& b) {
    return _mm256_or_si256(Bytes::Nibbles(b.qs), Bytes::FifthBits(b.qh));
  }
  static __m256 Scales(const std::byte* const* blocks) { return Bytes::Halves(blocks, 0); }
  static __m256 Mins(const std::byte* const* blocks) { return Bytes::Halves(blocks, 2); }
};

}  // namespace
}  // namespace strata::compute
