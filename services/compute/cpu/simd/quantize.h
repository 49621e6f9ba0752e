// Activations to their int8 forms (activations.h) with 256-bit instructions.
#pragma once

#include <cstdint>

#include "services/compute/cpu/activations.h"
#include "services/compute/cpu/simd/intrinsics.h"

namespace strata::compute {
namespace {

struct Quantize {
  static __m256 Abs(const float* p) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_loadu_ps(p));
  }
  static float Largest(__m256 x) {
    __m128 max = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    max = _mm_max_ps(max, _mm_movehl_ps(max, max));
    return _mm_cvtss_f32(_mm_max_ss(max, _mm_movehdup_ps(max)));
  }
  // The scale of a block with this largest magnitude, and its reciprocal.
  static float Scale(float largest, float* inverse) {
    const bool tiny = largest < kTinyBlock;
    *inverse = tiny ? 0 : 127.0f / largest;
    return tiny ? 0 : largest / 127.0f;
  }
  // 32 values to bytes.
  static __m256i Round32(const float* x, __m256 inverse) {
    __m256i v[4];
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i * 8), inverse));
    }
    // The packs work within 128-bit halves; the permutation restores the order.
    const __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
  // Sums of four neighbouring bytes.
  static __m256i Sums4(__m256i q) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
  }

  static void Row32(const float* x, int64_t n, std::byte* row) {
    const Int8Row32 out = Int8Row32::At(row, n);
    auto* q = const_cast<int8_t*>(out.q);
    auto* d = const_cast<float*>(out.d);
    auto* sum = const_cast<int32_t*>(out.sum);
    auto* shift = const_cast<int32_t*>(out.shift);
    auto* shift16 = const_cast<int32_t*>(out.shift16);
    for (int64_t b = 0; b < n / 32; ++b) {
      const float* from = x + b * 32;
      const __m256 largest = _mm256_max_ps(_mm256_max_ps(Abs(from), Abs(from + 8)),
                                           _mm256_max_ps(Abs(from + 16), Abs(from + 24)));
      float inverse;
      d[b] = Scale(Largest(largest), &inverse);
      const __m256i bytes = Round32(from, _mm256_set1_ps(inverse));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + b * 32), bytes);
      const __m256i fours = Sums4(bytes);
      const __m256i eights = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0xb1));
      const __m256i sixteens = _mm256_add_epi32(eights, _mm256_shuffle_epi32(eights, 0x4e));
      const int low = _mm_cvtsi128_si32(_mm256_castsi256_si128(sixteens));
      const int high = _mm_cvtsi128_si32(_mm256_extracti128_si256(sixteens, 1));
      sum[b] = low + high;
      shift16[2 * b] = -128 * low;
      shift16[2 * b + 1] = -128 * high;
      shift[b] = -128 * sum[b];
    }
  }

  // Row32 with the values of every 16 in the order 0 4 8 12 1 5 9 13 ...
  static void Row32Quads(const float* x, int64_t n, std::byte* row) {
    Row32(x, n, row);
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (int64_t i = 0; i < n; i += 16) {
      auto* q = reinterpret_cast<__m128i*>(row + i);
      _mm_storeu_si128(q, _mm_shuffle_epi8(_mm_loadu_si128(q), order));
    }
  }

  static void Row256(const float* x, int64_t n, std::byte* row) {
    const Int8Row256 out = Int8Row256::At(row, n);
    auto* q = const_cast<int8_t*>(out.q);
    auto* d = const_cast<float*>(out.d);
    auto* shift16 = const_cast<int32_t*>(out.shift16);
    auto* shift32 = const_cast<int32_t*>(out.shift32);
    auto* sum16 = const_cast<int16_t*>(out.sum16);
    auto* sum32 = const_cast<int16_t*>(out.sum32);
    for (int64_t b = 0; b < n / 256; ++b) {
      const float* from = x + b * 256;
      __m256 largest = Abs(from);
      for (int i = 8; i < 256; i += 8) largest = _mm256_max_ps(largest, Abs(from + i));
      float inverse;
      d[b] = Scale(Largest(largest), &inverse);
      const __m256 inverses = _mm256_set1_ps(inverse);
      for (int64_t g = b * 8; g < b * 8 + 8; ++g) {
        const __m256i bytes = Round32(x + g * 32, inverses);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + g * 32), bytes);
        const __m256i fours = Sums4(bytes);
        const __m256i eights = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0xb1));
        const __m256i sixteens = _mm256_add_epi32(eights, _mm256_shuffle_epi32(eights, 0x4e));
        const int low = _mm_cvtsi128_si32(_mm256_castsi256_si128(sixteens));
        const int high = _mm_cvtsi128_si32(_mm256_extracti128_si256(sixteens, 1));
        shift16[2 * g] = -128 * low;
        shift16[2 * g + 1] = -128 * high;
        shift32[g] = -128 * (low + high);
        sum16[2 * g] = static_cast<int16_t>(low);
        sum16[2 * g + 1] = static_cast<int16_t>(high);
        sum32[g] = static_cast<int16_t>(low + high);
      }
    }
  }
};

}  // namespace
}  // namespace strata::compute
