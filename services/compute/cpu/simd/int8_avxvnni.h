// Integer vectors for the products of int8 codes with the dot instructions of AVX-VNNI (Intel since
// 2021, AMD since 2024): those of int8_avx2.h, and the dot product of kernels with AVX-512 VNNI.
#pragma once

#include "services/compute/cpu/simd/int8_avx2.h"

namespace strata::compute {
namespace {

struct Int8AvxVnni : Int8Avx2 {
  static constexpr bool kHasDot = true;
  static constexpr int kDotBias = 128;

  static I Dot(I sum, I u8, I s8) { return _mm256_dpbusd_epi32(sum, u8, s8); }
  static __m256i Dot256(__m256i sum, __m256i u8, __m256i s8) { return Dot(sum, u8, s8); }
  static I MulAdd16(I a, I b, I sum) { return _mm256_dpwssd_epi32(sum, a, b); }
  static __m256i MulAdd16x256(__m256i a, __m256i b, __m256i sum) { return MulAdd16(a, b, sum); }
};

}  // namespace
}  // namespace strata::compute
