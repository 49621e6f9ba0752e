// The innermost step of products whose weights have a float scale for every 32 or 16 of them:
// kLanes outputs, one a lane, times a few activation rows (int8_product.h says what is computed).
#pragma once

#include <cstdint>

#include "services/compute/cpu/activations.h"

namespace strata::compute {
namespace {

// Of a format: kGroup (weights that share a scale), kOffset, kSigned, kMins, kHeadroom; see
// weight_formats.h.
template <typename Isa, typename Format>
struct GroupProduct {
  using I = typename Isa::I;
  using F = typename Isa::F;
  static constexpr int kSteps = Format::kGroup / 4;
  // With a dot instruction that wants it so, signed codes are made unsigned by adding 128.
  static constexpr bool kAdd128 = Isa::kDotBias == 128 && Format::kSigned;
  // Codes then exceed c by this; the activations' shift, -128 * sum of q, undoes it.
  static constexpr int kExcess = kAdd128 ? 128 : Format::kOffset;

  // Adds the products of the group that begins at input `first` to y. code(k): four codes of every
  // output, those that belong to the activation bytes first + 4 k and on.
  template <int kRows, typename CodeFn>
  static void Add(CodeFn code, F d, F min, const Int8Row32* x, int64_t first, F* y) {
    I dot[kRows];
    for (int r = 0; r < kRows; ++r) {
      if constexpr (kExcess == 0) {
        dot[r] = Isa::Zero();
      } else {
        const int32_t shift =
            Format::kGroup == 32 ? x[r].shift[first / 32] : x[r].shift16[first / 16];
        dot[r] = Isa::Set1(shift / 128 * kExcess);
      }
    }
    if constexpr (Isa::kHasDot) {
#pragma GCC unroll 8
      for (int k = 0; k < kSteps; ++k) {
        const I w = code(k);
        for (int r = 0; r < kRows; ++r) {
          dot[r] = Isa::Dot(dot[r], w, Isa::Broadcast(x[r].q + first + k * 4));
        }
      }
    } else {
      constexpr int kChain = Format::kHeadroom < kSteps ? Format::kHeadroom : kSteps;
      static_assert(kSteps % kChain == 0);
#pragma GCC unroll 8
      for (int k = 0; k < kSteps; k += kChain) {
        I pairs[kRows];
        for (int r = 0; r < kRows; ++r) pairs[r] = Isa::Zero();
#pragma GCC unroll 8
        for (int j = 0; j < kChain; ++j) {
          const I w = code(k + j);
          const I size = Format::kSigned ? Isa::Abs8(w) : w;
          for (int r = 0; r < kRows; ++r) {
            I a = Isa::Broadcast(x[r].q + first + (k + j) * 4);
            if constexpr (Format::kSigned) a = Isa::Sign8(a, w);
            const I pair = Isa::PairDot(size, a);
            pairs[r] = j == 0 ? pair : Isa::Add16(pairs[r], pair);
          }
        }
        const I ones = Isa::Set1(0x00010001);
        for (int r = 0; r < kRows; ++r) dot[r] = Isa::MulAdd16(pairs[r], ones, dot[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const F dx = Isa::Set1F(x[r].d[first / 32]);
      y[r] = Isa::MulAddF(Isa::MulF(d, dx), Isa::ToFloat(dot[r]), y[r]);
      if constexpr (Format::kMins) {
        const int32_t sum = x[r].sum[first / 32];
        y[r] = Isa::MulAddF(Isa::MulF(min, dx), Isa::Set1F(static_cast<float>(sum)), y[r]);
      }
    }
  }
};

}  // namespace
}  // namespace strata::compute
