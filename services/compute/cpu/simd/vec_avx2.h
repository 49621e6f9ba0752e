// Float vectors of eight lanes; the interface is explained in vec_portable.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "services/compute/cpu/simd/exp2_series.h"
#include "services/compute/cpu/simd/lanes8.h"

namespace strata::compute {

// Once for each unit that is compiled with instructions of its own.
template <typename Unit>
struct Vec256 {
  using Short = Vec256;
  static constexpr int kLanes = 8;
  static constexpr int kRegisters = 16;
  using F = __m256;

  static F Zero() { return _mm256_setzero_ps(); }
  static F Set1(float x) { return _mm256_set1_ps(x); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F LoadPartial(const float* p, int64_t n) { return _mm256_maskload_ps(p, Mask(n)); }
  static void StorePartial(float* p, F x, int64_t n) { _mm256_maskstore_ps(p, Mask(n), x); }
  static F LoadHalf(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void StoreHalf(uint16_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static F LoadBf16(const uint16_t* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static F LoadBytes(const int8_t* p) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F MulAdd(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static float ReduceAdd(F x) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
  }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static float ReduceMax(F x) {
    __m128 max = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    max = _mm_max_ps(max, _mm_movehl_ps(max, max));
    return _mm_cvtss_f32(_mm_max_ss(max, _mm_movehdup_ps(max)));
  }
  static float First(F x) { return _mm256_cvtss_f32(x); }
  static void Transpose(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
    F v[kLanes];
    for (int i = 0; i < kLanes; ++i) v[i] = Load(in + i * in_stride);
    Lanes8::Transpose(v);
    for (int i = 0; i < kLanes; ++i) Store(out + i * out_stride, v[i]);
  }
  // exp(x) = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2 and e^r by its Taylor polynomial of
  // degree 7 (remainder below 6e-9). 2^n is applied in two factors, so that results run through the
  // denormals to zero and to infinity. The operand order of max and min lets NaN through.
  static F Exp(F x) {
    x = _mm256_min_ps(Set1(89), _mm256_max_ps(Set1(-105), x));
    const F n =
        _mm256_round_ps(Mul(x, Set1(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    F r = _mm256_fnmadd_ps(n, Set1(0.693145752f), x);  // ln 2 in two parts: the first is exact
    r = _mm256_fnmadd_ps(n, Set1(1.42860677e-6f), r);  // in n * part
    F p = Set1(1.0f / 5040);
    for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
      p = MulAdd(p, r, Set1(c));
    }
    const __m256i exponent = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(exponent, 1);
    return Mul(Mul(p, PowerOfTwo(half)), PowerOfTwo(_mm256_sub_epi32(exponent, half)));
  }
  // 2^x for x <= 0 by a series around the nearest integer, which is added to the exponent; NaN
  // passes through.
  static F Exp2(F x) {
    const F lowest = Set1(-126);
    const F above = _mm256_max_ps(lowest, x);
    const F n = _mm256_round_ps(above, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const F r = Sub(above, n);
    const F p = Exp2Series<Vec256>(r);
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    const F power = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
    return _mm256_and_ps(power, _mm256_cmp_ps(x, lowest, _CMP_NLT_UQ));
  }

 private:
  static __m256i Mask(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F PowerOfTwo(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
};

using VecAvx2 = Vec256<struct UnitAvx2>;

}  // namespace strata::compute
