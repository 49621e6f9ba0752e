// Integer vectors of sixteen 32-bit lanes with the dot instructions of AVX-512 VNNI; the interface
// is that of int8_avx2.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace strata::compute {
namespace {

struct Int8Avx512 {
  static constexpr int kLanes = 16;
  static constexpr int kPanelVectors = 2;
  static constexpr int kPanelRows = 5;
  static constexpr int kFewRows = 3;
  static constexpr bool kHasDot = true;
  static constexpr int kDotBias = 128;  // what makes signed codes the unsigned factor of Dot
  using I = __m512i;
  using F = __m512;

  static I Zero() { return _mm512_setzero_si512(); }
  static I Set1(int32_t x) { return _mm512_set1_epi32(x); }
  static I Load(const void* p) { return _mm512_loadu_si512(p); }
  static I Broadcast(const void* p) {
    int32_t x;
    std::memcpy(&x, p, sizeof(x));
    return Set1(x);
  }
  static I And(I a, I b) { return _mm512_and_si512(a, b); }
  static I Or(I a, I b) { return _mm512_or_si512(a, b); }
  static I Xor(I a, I b) { return _mm512_xor_si512(a, b); }
  template <int kBits>
  static I ShiftLeft16(I x) {
    return _mm512_slli_epi16(x, kBits);
  }
  template <int kBits>
  static I ShiftRight16(I x) {
    return _mm512_srli_epi16(x, kBits);
  }
  template <int kBits>
  static I ShiftRightSigned16(I x) {
    return _mm512_srai_epi16(x, kBits);
  }
  template <int kBits>
  static I ShiftRightSigned32(I x) {
    return _mm512_srai_epi32(x, kBits);
  }
  static I PickBytes(I x, uint32_t pattern) {
    const I lane = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    return _mm512_shuffle_epi8(x, _mm512_or_si512(lane, Set1(static_cast<int32_t>(pattern))));
  }
  static I Lookup16(const int8_t* table, I index) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), index);
  }
  static void LoadTransposed(const std::byte* const* rows, size_t offset, I* words) {
    const auto load = [rows, offset](int r) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[r] + offset));
    };
    I row[4];
    for (int m = 0; m < 4; ++m) {
      row[m] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(load(m + 4), load(m))),
                                  _mm256_set_m128i(load(m + 12), load(m + 8)), 1);
    }
    const I a = _mm512_unpacklo_epi32(row[0], row[1]);
    const I b = _mm512_unpackhi_epi32(row[0], row[1]);
    const I c = _mm512_unpacklo_epi32(row[2], row[3]);
    const I d = _mm512_unpackhi_epi32(row[2], row[3]);
    words[0] = _mm512_unpacklo_epi64(a, c);
    words[1] = _mm512_unpackhi_epi64(a, c);
    words[2] = _mm512_unpacklo_epi64(b, d);
    words[3] = _mm512_unpackhi_epi64(b, d);
  }
  static I Add8(I a, I b) { return _mm512_add_epi8(a, b); }
  static I Sub8(I a, I b) { return _mm512_sub_epi8(a, b); }
  static I Add(I a, I b) { return _mm512_add_epi32(a, b); }
  static I Mul(I a, I b) { return _mm512_mullo_epi32(a, b); }
  // sum + the dot products of four u8 and four s8.
  static I Dot(I sum, I u8, I s8) { return _mm512_dpbusd_epi32(sum, u8, s8); }
  static __m256i Dot256(__m256i sum, __m256i u8, __m256i s8) {
    return _mm256_dpbusd_epi32(sum, u8, s8);
  }
  static I MulAdd16(I a, I b, I sum) { return _mm512_dpwssd_epi32(sum, a, b); }
  static __m256i MulAdd16x256(__m256i a, __m256i b, __m256i sum) {
    return _mm256_dpwssd_epi32(sum, a, b);
  }

  static F LoadF(const float* p) { return _mm512_loadu_ps(p); }
  static void StoreF(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F Join(const __m256* parts) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(parts[0]), parts[1], 1);
  }
  static I LoadParts(const std::byte* const* at, size_t offset) {
    const auto load = [at, offset](int part) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at[part] + offset));
    };
    return _mm512_inserti64x4(_mm512_castsi256_si512(load(0)), load(1), 1);
  }
  static F Set1F(float x) { return _mm512_set1_ps(x); }
  static F MulF(F a, F b) { return _mm512_mul_ps(a, b); }
  static F ToFloat(I x) { return _mm512_cvtepi32_ps(x); }
  static F MulAddF(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F NegMulAddF(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
};

}  // namespace
}  // namespace strata::compute
