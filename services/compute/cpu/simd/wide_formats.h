// Few-row products of some formats of 256 weights with 512-bit vectors: a block's codes fill whole
// vectors, with a group or half of one in each 128-bit lane, so that a vector of codes has one
// vector of scales. Activations are brought into the same order once for all outputs (Arrange). The
// results are those of weight_formats.h; only the way differs.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/quant/blocks.h"
#include "common/quant/values4.h"
#include "services/compute/cpu/activations.h"
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

struct Wide {
  static __m512i Load(const void* p) { return _mm512_loadu_si512(p); }
  // 32 bytes each.
  static __m512i Halves(const void* low, const void* high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(Bytes::Load(low)), Bytes::Load(high), 1);
  }
  // x shifted right within 16 bits, then masked.
  template <int kRight>
  static __m512i Field(__m512i x, int mask) {
    return _mm512_and_si512(_mm512_srli_epi16(x, kRight),
                            _mm512_set1_epi8(static_cast<char>(mask)));
  }
  // The same, or another bit.
  template <int kRight>
  static __m512i FieldOr(__m512i x, int mask, int bits) {
    constexpr int kAndOr = 0xea;  // (a & b) | c
    return _mm512_ternarylogic_epi32(_mm512_srli_epi16(x, kRight),
                                     _mm512_set1_epi8(static_cast<char>(mask)),
                                     _mm512_set1_epi8(static_cast<char>(bits)), kAndOr);
  }
  // Lane i of the result holds scale number a, b, c, d of `lanes` (32-bit) for i = 0, 1, 2, 3.
  static __m512i LaneScales(__m512i lanes, int a, int b, int c, int d) {
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d), lanes);
  }
  static __m256i Fold(__m512i x) {
    return _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
  }
};

struct WideQ2K : FormatQ2K {
  // Field k of byte l of half h is weight 128 h + 32 k + l: vector k of the codes has the groups
  // 2 k, 2 k + 1, 8 + 2 k and 9 + 2 k in its lanes.
  static void Arrange(const int8_t* q, int8_t* to) {
    for (int k = 0; k < 4; ++k) {
      _mm512_store_si512(to + 64 * k, Wide::Halves(q + 32 * k, q + 128 + 32 * k));
    }
  }
  template <int kRows>
  static void WideDots(const Block& b, const int8_t* const* q, const Int8Row256* x, int64_t block,
                       __m256i* dots, __m256i* mins) {
    // A code is looked up as its product with the group's scale, which is at most 3 * 15: the
    // products with activations then need no scales. Byte 4 k + c of a lane is for code c of
    // vector k.
    const __m512i table = ScaledCodes(b);
    const __m512i bytes = Wide::Load(b.qs);
    const __m512i codes[4] = {Wide::FieldOr<0>(bytes, 3, 0), Wide::FieldOr<2>(bytes, 3, 4),
                              Wide::FieldOr<4>(bytes, 3, 8), Wide::FieldOr<6>(bytes, 3, 12)};
    __m512i sum[kRows];
    for (int r = 0; r < kRows; ++r) sum[r] = _mm512_setzero_si512();
    for (int k = 0; k < 4; ++k) {
      const __m512i scaled = _mm512_shuffle_epi8(table, codes[k]);
      for (int r = 0; r < kRows; ++r) {
        sum[r] = _mm512_dpbusd_epi32(sum[r], scaled, Wide::Load(q[r] + 64 * k));
      }
    }
    const __m256i m = _mm256_cvtepi8_epi16(Mins(b));
    for (int r = 0; r < kRows; ++r) {
      dots[r] = Wide::Fold(sum[r]);
      mins[r] = _mm256_madd_epi16(m, Bytes::Load(x[r].sum16 + block * 16));
    }
  }

 private:
  static __m512i ScaledCodes(const Block& b) {
    // The scale of a group, twice, as words.
    const __m512i pick = _mm512_set_epi64(
        0x800f800f800d800d, 0x800b800b80098009, 0x800e800e800c800c, 0x800a800a80088008,
        0x8007800780058005, 0x8003800380018001, 0x8006800680048004, 0x8002800280008000);
    const __m512i scales =
        _mm512_and_si512(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(Bytes::Load16(b.scales)), pick),
                         _mm512_set1_epi8(15));
    // Times 0 and 1, times 2 and 3.
    return _mm512_mullo_epi16(scales, _mm512_set1_epi32(0x03020100));
  }
};

struct WideIQ4XS : FormatIQ4XS {
  // 64 bytes hold four groups, one in each lane: 16 weights in the low halves, 16 in the high ones.
  static void Arrange(const int8_t* q, int8_t* to) {
    for (int i = 0; i < 2; ++i) {
      const __m512i a = Wide::Load(q + 128 * i);
      const __m512i b = Wide::Load(q + 128 * i + 64);
      _mm512_store_si512(to + 128 * i, _mm512_shuffle_i64x2(a, b, 0x88));       // the even 16 bytes
      _mm512_store_si512(to + 128 * i + 64, _mm512_shuffle_i64x2(a, b, 0xdd));  // the odd ones
    }
  }
  template <int kRows>
  static void WideDots(const Block& b, const int8_t* const* q, const Int8Row256* x, int64_t block,
                       __m256i* dots, __m256i* /*mins*/) {
    // The values plus 128, which makes them unsigned; the sums of the activations undo it.
    const __m128i values = _mm_xor_si128(Bytes::Load16(quant::kIq4NlValues), _mm_set1_epi8(-128));
    const __m512i table = _mm512_broadcast_i32x4(values);
    const __m128i scales = Scales(b);
    const __m512i lanes = _mm512_cvtepi8_epi32(scales);
    __m512i sum[kRows];
    for (int r = 0; r < kRows; ++r) sum[r] = _mm512_setzero_si512();
    for (int i = 0; i < 2; ++i) {
      const __m512i qs = Wide::Load(b.qs + 64 * i);
      const __m512i low = _mm512_shuffle_epi8(table, Wide::Field<0>(qs, 15));
      const __m512i high = _mm512_shuffle_epi8(table, Wide::Field<4>(qs, 15));
      const __m512i scale = Wide::LaneScales(lanes, 4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3);
      for (int r = 0; r < kRows; ++r) {
        __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low, Wide::Load(q[r] + 128 * i));
        dot = _mm512_dpbusd_epi32(dot, high, Wide::Load(q[r] + 128 * i + 64));
        sum[r] = _mm512_add_epi32(sum[r], _mm512_mullo_epi32(dot, scale));
      }
    }
    const __m128i words = _mm_cvtepi8_epi16(scales);
    for (int r = 0; r < kRows; ++r) {
      const __m128i sums = _mm_madd_epi16(words, Bytes::Load16(x[r].sum32 + block * 8));
      dots[r] =
          _mm256_sub_epi32(Wide::Fold(sum[r]), _mm256_zextsi128_si256(_mm_slli_epi32(sums, 7)));
    }
  }
};

}  // namespace
}  // namespace strata::compute
