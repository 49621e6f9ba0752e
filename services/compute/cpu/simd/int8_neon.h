// Integer vectors for the products of int8 codes on ARM: those of int8_avx2.h in SIMDe's
// translation, and the processor's own dot product, which does most of the work.
#pragma once

#include <arm_neon.h>

#include <bit>

#include "services/compute/cpu/simd/int8_avx2.h"

namespace strata::compute {
namespace {

struct Int8Neon : Int8Avx2 {
  static constexpr bool kHasDot = true;
  // Both factors are signed. Unsigned codes have seven bits at most, so they are that, too.
  static constexpr int kDotBias = 0;

  // sum + the dot products of four codes and four q.
  static I Dot(I sum, I codes, I q) {
    Halves out = std::bit_cast<Halves>(sum);
    const auto c = std::bit_cast<ByteHalves>(codes);
    const auto a = std::bit_cast<ByteHalves>(q);
    out.low = vdotq_s32(out.low, c.low, a.low);
    out.high = vdotq_s32(out.high, c.high, a.high);
    return std::bit_cast<I>(out);
  }
  static __m256i Dot256(__m256i sum, __m256i codes, __m256i q) { return Dot(sum, codes, q); }

 private:
  struct alignas(32) Halves {
    int32x4_t low, high;
  };
  struct alignas(32) ByteHalves {
    int8x16_t low, high;
  };
};

}  // namespace
}  // namespace strata::compute
