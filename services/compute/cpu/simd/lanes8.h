// Moving eight vectors of eight 32-bit lanes: sums across lanes and transposition.
#pragma once

#include "services/compute/cpu/simd/intrinsics.h"

namespace strata::compute {
namespace {

struct Lanes8 {
  // Lane r of the result is the sum of the lanes of v[r].
  static __m256i SumEach(const __m256i* v) {
    const __m256i a =
        _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    const __m256i b =
        _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
  }

  // Lane r of the result is the sum of the lanes of v[r], for four vectors.
  static __m128i SumFour(const __m256i* v) {
    const __m256i a =
        _mm256_add_epi32(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
    const __m256i b =
        _mm256_add_epi32(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
    const __m256i c = _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    return _mm_add_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));
  }

  // Lane c of v[r] moves to lane r of v[c].
  static void Transpose(__m256i* v) {
    __m256i a[8];
    for (int i = 0; i < 8; i += 2) {
      a[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
      a[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    __m256i b[8];
    for (int i = 0; i < 8; i += 4) {
      b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
      b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
      b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
      b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
      v[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
  }
  static void Transpose(__m256* v) {
    __m256i bits[8];
    for (int i = 0; i < 8; ++i) bits[i] = _mm256_castps_si256(v[i]);
    Transpose(bits);
    for (int i = 0; i < 8; ++i) v[i] = _mm256_castsi256_ps(bits[i]);
  }
};

}  // namespace
}  // namespace strata::compute
