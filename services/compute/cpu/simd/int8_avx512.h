// Integer vectors of sixteen 32-bit lanes with the dot instructions of AVX-512 VNNI; the interface
// is that of int8_avx2.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace strata::compute {

struct Int8Avx512 {
  static constexpr int kLanes = 16;
  static constexpr int kPanelRows = 8;
  static constexpr int kFewRows = 3;
  static constexpr bool kHasDot = true;
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
  static F Set1F(float x) { return _mm512_set1_ps(x); }
  static F MulF(F a, F b) { return _mm512_mul_ps(a, b); }
  static F ToFloat(I x) { return _mm512_cvtepi32_ps(x); }
  static F MulAddF(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F NegMulAddF(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
};

}  // namespace strata::compute
