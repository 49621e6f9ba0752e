// Scores of queries against keys, and what softmax makes of them. Lanes are queries: a key is read
// as it lies in the cache, maxima and sums need no step across lanes, and every query's numbers
// are formed in the same order whoever shares its vector.
#pragma once

#include <cstdint>

namespace strata::compute {

template <typename V>
struct AttentionScores {
  using F = typename V::F;
  // Queries of one product, in vectors, and keys: as many sums as fit into registers, enough to
  // hide the latency of their additions, with at most one load for two of them.
  static constexpr int kVectors = V::kRegisters == 32 ? 4 : 3;
  static constexpr int Keys(int vectors) { return vectors > 1 ? 4 : kKeys; }
  static constexpr int kKeys = 8;  // scored in one call

  // scores[j * columns + i] = sum_d k[j * stride + d] * q[d * columns + i] for kKeys keys, d
  // ascending.
  template <int kN = kVectors>
  static void Score(const float* k, int64_t stride, const float* q, int columns, int dims,
                    float* scores, int column = 0) {
    for (; column + kN * V::kLanes <= columns; column += kN * V::kLanes) {
      for (int j = 0; j < kKeys; j += Keys(kN)) {
        Product<Keys(kN), kN>(k + j * stride, stride, q + column, columns, dims,
                              scores + j * columns + column);
      }
    }
    if constexpr (kN > 1) Score<kN - 1>(k, stride, q, columns, dims, scores, column);
  }

  // Scores of `keys` keys, as powers of two, become weights; max, sum and correction have a number
  // for each column. See attention_tile.h for the formula.
  static void Softmax(float* p, int keys, int columns, float* max, float* sum, float* correction) {
    for (int i = 0; i < columns; i += V::kLanes) {
      const F before = V::Load(max + i);
      F most = before;
      for (int j = 0; j < keys; ++j) most = V::Max(most, V::Load(p + j * columns + i));
      F total = V::Zero();
      for (int j = 0; j < keys; ++j) {
        const F weight = V::Exp2(V::Sub(V::Load(p + j * columns + i), most));
        V::Store(p + j * columns + i, weight);
        total = V::Add(total, weight);
      }
      const F factor = V::Exp2(V::Sub(before, most));
      V::Store(sum + i, V::MulAdd(V::Load(sum + i), factor, total));
      V::Store(max + i, most);
      V::Store(correction + i, factor);
    }
  }

 private:
  // Not inlined: beside what its caller holds, the pointers would not fit into registers.
  template <int kM, int kN>
  [[gnu::noinline]] static void Product(const float* k, int64_t stride, const float* q, int columns,
                                        int dims, float* scores) {
    F sum[kM][kN];
    for (int j = 0; j < kM; ++j) {
      for (int i = 0; i < kN; ++i) sum[j][i] = V::Zero();
    }
    for (int d = 0; d < dims; ++d) {
      F x[kN];
      for (int i = 0; i < kN; ++i) x[i] = V::Load(q + d * columns + i * V::kLanes);
      for (int j = 0; j < kM; ++j) {
        const F y = V::Set1(k[j * stride + d]);
        for (int i = 0; i < kN; ++i) sum[j][i] = V::MulAdd(y, x[i], sum[j][i]);
      }
    }
    for (int j = 0; j < kM; ++j) {
      for (int i = 0; i < kN; ++i) V::Store(scores + j * columns + i * V::kLanes, sum[j][i]);
    }
  }
};

}  // namespace strata::compute
