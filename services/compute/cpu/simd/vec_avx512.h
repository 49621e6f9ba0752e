// Float vectors of sixteen lanes; the interface is explained in vec_portable.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "services/compute/cpu/simd/exp2_series.h"
#include "services/compute/cpu/simd/lanes8.h"
#include "services/compute/cpu/simd/vec_avx2.h"

namespace strata::compute {

struct VecAvx512 {
  using Short = Vec256<VecAvx512>;
  static constexpr int kLanes = 16;
  static constexpr int kRegisters = 32;
  using F = __m512;

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set1(float x) { return _mm512_set1_ps(x); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F LoadPartial(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(Mask(n), p); }
  static void StorePartial(float* p, F x, int64_t n) { _mm512_mask_storeu_ps(p, Mask(n), x); }
  static F LoadHalf(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void StoreHalf(uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static F LoadBf16(const uint16_t* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static F LoadBytes(const int8_t* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F MulAdd(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static float ReduceAdd(F x) {
    const __m256 high = _mm512_extractf32x8_ps(x, 1);
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), high);
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
  }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static float ReduceMax(F x) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 max = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    max = _mm_max_ps(max, _mm_movehl_ps(max, max));
    return _mm_cvtss_f32(_mm_max_ss(max, _mm_movehdup_ps(max)));
  }
  static float First(F x) { return _mm512_cvtss_f32(x); }
  // By squares of eight.
  static void Transpose(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
    for (int i = 0; i < kLanes; i += 8) {
      for (int j = 0; j < kLanes; j += 8) {
        __m256 v[8];
        for (int k = 0; k < 8; ++k) v[k] = _mm256_loadu_ps(in + (i + k) * in_stride + j);
        Lanes8::Transpose(v);
        for (int k = 0; k < 8; ++k) _mm256_storeu_ps(out + (j + k) * out_stride + i, v[k]);
      }
    }
  }
  // As in vec_avx2.h; scalef multiplies by 2^n through denormals and to infinity by itself.
  static F Exp(F x) {
    x = _mm512_min_ps(Set1(89), _mm512_max_ps(Set1(-105), x));
    const F n = _mm512_roundscale_ps(Mul(x, Set1(1.44269504f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    F r = _mm512_fnmadd_ps(n, Set1(0.693145752f), x);
    r = _mm512_fnmadd_ps(n, Set1(1.42860677e-6f), r);
    F p = Set1(1.0f / 5040);
    for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
      p = MulAdd(p, r, Set1(c));
    }
    return _mm512_scalef_ps(p, n);
  }
  // As in vec_avx2.h, to the bit.
  static F Exp2(F x) {
    const F n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const F r = Sub(x, n);
    const F p = Exp2Series<VecAvx512>(r);
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, Set1(-126), _CMP_NLT_UQ), p, n);
  }

 private:
  static __mmask16 Mask(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
};

}  // namespace strata::compute
