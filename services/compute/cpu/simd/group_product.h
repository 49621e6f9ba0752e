// The innermost step of products whose weights have a float scale for every 32 or 16 of them:
// vectors of outputs, one a lane, times a few activation rows (int8_product.h says what is
// computed).
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
  // Steps whose pair sums are added in 16 bits, without a dot instruction.
  static constexpr int kChain = Format::kHeadroom < kSteps ? Format::kHeadroom : kSteps;
  static_assert(kSteps % kChain == 0);
  // Vectors of outputs that share an activation: where it gets each code's sign, there is nothing
  // to share.
  static constexpr int kVectors = !Isa::kHasDot && Format::kSigned ? 1 : Isa::kPanelVectors;

  // Adds the products of the group that begins at input `first` to y. For vector v of the outputs,
  // weights.Code(v, k) are four codes each, those that belong to the activation bytes first + 4 k
  // and on, weights.D(v) and Min(v) the scales and minima. If Weights::kFlips, Code() are
  // magnitudes, Flip(v, k) has 255 where they are of negative codes, and Start(v) is the sum of
  // those: see panel256.h.
  template <int kCount, int kRows, typename Weights>
  static void Add(const Weights& weights, const Int8Row32* x, int64_t first, F (*y)[kRows]) {
    I dot[kCount][kRows];
    Start<kCount, kRows>(weights, x, first, dot);
    if constexpr (Isa::kHasDot) {
#pragma GCC unroll 8
      for (int k = 0; k < kSteps; ++k) {
        I w[kCount];
        for (int v = 0; v < kCount; ++v) w[v] = weights.Code(v, k);
        for (int r = 0; r < kRows; ++r) {
          const I q = Isa::Broadcast(x[r].q + first + k * 4);
          for (int v = 0; v < kCount; ++v) dot[v][r] = Isa::Dot(dot[v][r], w[v], q);
        }
      }
    } else {
      if constexpr (Weights::kFlips) {
        // Unrolled, GCC would keep some of the sums in memory.
#pragma GCC unroll 1
        for (int k = 0; k < kSteps; k += kChain) {
          AddPairs<kCount, kRows>(weights, k, x, first, dot);
        }
      } else {
#pragma GCC unroll 8
        for (int k = 0; k < kSteps; k += kChain) {
          AddPairs<kCount, kRows>(weights, k, x, first, dot);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const F dx = Isa::Set1F(x[r].d[first / 32]);
      for (int v = 0; v < kCount; ++v) {
        y[v][r] = Isa::MulAddF(Isa::MulF(weights.D(v), dx), Isa::ToFloat(dot[v][r]), y[v][r]);
        if constexpr (Format::kMins) {
          const int32_t sum = x[r].sum[first / 32];
          const F min = Isa::MulF(weights.Min(v), dx);
          y[v][r] = Isa::MulAddF(min, Isa::Set1F(static_cast<float>(sum)), y[v][r]);
        }
      }
    }
  }

 private:
  template <int kCount, int kRows, typename Weights>
  [[gnu::always_inline]] static void Start(const Weights& weights, const Int8Row32* x,
                                           int64_t first, I (*dot)[kRows]) {
    for (int r = 0; r < kRows; ++r) {
      I excess = Isa::Zero();
      if constexpr (kExcess != 0) {
        const int32_t* shift =
            Format::kGroup == 32 ? x[r].shift + first / 32 : x[r].shift16 + first / 16;
        excess = Isa::Broadcast(shift);
        if constexpr (kExcess != 128) {
          excess = Isa::Mul(Isa::template ShiftRightSigned32<7>(excess), Isa::Set1(kExcess));
        }
      }
      for (int v = 0; v < kCount; ++v) {
        if constexpr (Weights::kFlips) {
          dot[v][r] = weights.Start(v);
        } else {
          dot[v][r] = excess;
        }
      }
    }
  }

  template <int kCount, int kRows, typename Weights>
  [[gnu::always_inline]] static void AddPairs(const Weights& weights, int step, const Int8Row32* x,
                                              int64_t first, I (*dot)[kRows]) {
    I pairs[kCount][kRows];
#pragma GCC unroll 8
    for (int k = step; k < step + kChain; ++k) {
      I w[kCount];
      I sign[kCount];  // or flips
      for (int v = 0; v < kCount; ++v) {
        w[v] = weights.Code(v, k);
        if constexpr (Weights::kFlips) {
          sign[v] = weights.Flip(v, k);
        } else if constexpr (Format::kSigned) {
          sign[v] = w[v];
          w[v] = Isa::Abs8(w[v]);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        const I four = Isa::Broadcast(x[r].q + first + k * 4);
        for (int v = 0; v < kCount; ++v) {
          I q = four;
          if constexpr (Weights::kFlips) {
            q = Isa::Xor(q, sign[v]);
          } else if constexpr (Format::kSigned) {
            q = Isa::Sign8(q, sign[v]);
          }
          const I pair = Isa::PairDot(w[v], q);
          pairs[v][r] = k == step ? pair : Isa::Add16(pairs[v][r], pair);
          Isa::Keep(pairs[v][r]);
        }
      }
    }
    const I ones = Isa::Set1(0x00010001);
    for (int v = 0; v < kCount; ++v) {
      for (int r = 0; r < kRows; ++r) dot[v][r] = Isa::MulAdd16(pairs[v][r], ones, dot[v][r]);
    }
  }
};

}  // namespace
}  // namespace strata::compute
