// Integer vectors of eight 32-bit lanes for the products of int8 codes; AVX2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "services/compute/cpu/simd/intrinsics.h"

namespace strata::compute {
namespace {

struct Int8Avx2 {
  static constexpr int kLanes = 8;
  static constexpr int kPanelVectors = 2;  // of outputs of a panel, which share an activation
  static constexpr int kPanelRows = 4;     // activation rows that share a load of the panel
  static constexpr int kFewRows = 3;       // up to here, row by row beats panels
  static constexpr bool kHasDot = false;   // no u8 x s8 -> s32 instruction
  static constexpr int kDotBias = 0;
  using I = __m256i;
  using F = __m256;

  static I Zero() { return _mm256_setzero_si256(); }
  static I Set1(int32_t x) { return _mm256_set1_epi32(x); }
  static I Load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static void Store(void* p, I x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
  // Four bytes (or two 16-bit values) in every lane.
  static I Broadcast(const void* p) {
    int32_t x;
    std::memcpy(&x, p, sizeof(x));
    return Set1(x);
  }
  static I And(I a, I b) { return _mm256_and_si256(a, b); }
  static I Or(I a, I b) { return _mm256_or_si256(a, b); }
  static I Xor(I a, I b) { return _mm256_xor_si256(a, b); }
  template <int kBits>
  static I ShiftLeft16(I x) {
    return _mm256_slli_epi16(x, kBits);
  }
  template <int kBits>
  static I ShiftRight16(I x) {
    return _mm256_srli_epi16(x, kBits);
  }
  template <int kBits>
  static I ShiftRightSigned16(I x) {
    return _mm256_srai_epi16(x, kBits);
  }
  template <int kBits>
  static I ShiftRightSigned32(I x) {
    return _mm256_srai_epi32(x, kBits);
  }
  // Every lane's bytes anew: byte i is the lane's byte number (pattern >> 8 i & 255), or zero if
  // that is 128.
  static I PickBytes(I x, uint32_t pattern) {
    const I lane = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404,
                                     0x08080808, 0x0c0c0c0c);
    return _mm256_shuffle_epi8(x, _mm256_or_si256(lane, Set1(static_cast<int32_t>(pattern))));
  }
  // table[index] for bytes below 16.
  static I Lookup16(const int8_t* table, I index) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), index);
  }
  // 16 bytes at `offset` of kLanes rows: lane r of words[j] is the j-th 32-bit word of row r.
  static void LoadTransposed(const std::byte* const* rows, size_t offset, I* words) {
    const auto load = [rows, offset](int r) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[r] + offset));
    };
    I row[4];
    for (int m = 0; m < 4; ++m) row[m] = _mm256_set_m128i(load(m + 4), load(m));
    const I a = _mm256_unpacklo_epi32(row[0], row[1]);
    const I b = _mm256_unpackhi_epi32(row[0], row[1]);
    const I c = _mm256_unpacklo_epi32(row[2], row[3]);
    const I d = _mm256_unpackhi_epi32(row[2], row[3]);
    words[0] = _mm256_unpacklo_epi64(a, c);
    words[1] = _mm256_unpackhi_epi64(a, c);
    words[2] = _mm256_unpacklo_epi64(b, d);
    words[3] = _mm256_unpackhi_epi64(b, d);
  }
  static I Add(I a, I b) { return _mm256_add_epi32(a, b); }
  static I Add8(I a, I b) { return _mm256_add_epi8(a, b); }
  static I Sub8(I a, I b) { return _mm256_sub_epi8(a, b); }
  static I Add16(I a, I b) { return _mm256_add_epi16(a, b); }
  static I Mul(I a, I b) { return _mm256_mullo_epi32(a, b); }
  // Pairs of u8 x s8 products, added to 16 bits; the caller excludes overflow.
  static I PairDot(I u8, I s8) { return _mm256_maddubs_epi16(u8, s8); }
  // Makes the compiler have x in a register here: of the sums in unrolled loops it would keep some
  // in memory, or move them from one register to the next.
  static void Keep(I& x) { asm("" : "+x"(x)); }
  static I Abs8(I x) { return _mm256_abs_epi8(x); }
  static I Sign8(I x, I sign) { return _mm256_sign_epi8(x, sign); }
  // sum + the pairs of 16-bit products.
  static I MulAdd16(I a, I b, I sum) { return Add(sum, _mm256_madd_epi16(a, b)); }
  static __m256i MulAdd16x256(__m256i a, __m256i b, __m256i sum) { return MulAdd16(a, b, sum); }

  static F LoadF(const float* p) { return _mm256_loadu_ps(p); }
  static void StoreF(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F Join(const __m256* parts) { return parts[0]; }
  // A vector of 256 bits at `offset` from each of `at`.
  static I LoadParts(const std::byte* const* at, size_t offset) { return Load(at[0] + offset); }
  static F Set1F(float x) { return _mm256_set1_ps(x); }
  static F MulF(F a, F b) { return _mm256_mul_ps(a, b); }
  static F ToFloat(I x) { return _mm256_cvtepi32_ps(x); }
  static F MulAddF(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F NegMulAddF(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
};

}  // namespace
}  // namespace strata::compute
