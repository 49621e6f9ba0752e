// Sums of values weighted by attention. Lanes are dimensions of a head.
#pragma once

#include <cstdint>

#include "services/compute/cpu/simd/attention_cache.h"

namespace strata::compute {

template <typename V>
struct AttentionValues {
  using F = typename V::F;
  // Queries that share a load of values, and vectors of values that share a weight.
  static constexpr int kQueries = V::kRegisters == 32 ? 8 : 4;
  static constexpr int kVectors = 2;

  // The values of a block's keys: gathered, or where they lie.
  struct Gathered {
    const float* v;
    int64_t stride;
    F Load(int key, int d) const { return V::Load(v + key * stride + d); }
    void ReadAhead(int, int) const {}
  };
  template <TensorType kType, int kKeys>
  struct Stored {
    const std::byte* row[kKeys];
    const std::byte* ahead[kKeys];
    F Load(int key, int d) const { return AttentionCache<V>::template Load<kType>(row[key], d); }
    void ReadAhead(int key, int d) const {
      __builtin_prefetch(AttentionCache<V>::template At<kType>(ahead[key], d));
    }
  };

  // Weights of a block's keys: that of key j for query i is p[j * columns + i]; query i's sums are
  // multiplied by correction[i] first.
  struct Weights {
    const float* p;
    int columns;
    const float* correction;
  };

  // values[i] = values[i] * correction[i] + sum_j p_ij v_j, j ascending in [begin, end), for
  // queries [first, first + count); dims is a multiple of kLanes, and a row of `values` has as
  // many.
  template <typename Values>
  static void Accumulate(const Weights& w, const Values& v, int first, int count, int begin,
                         int end, int dims, float* values) {
    int d = 0;
    for (; d + kVectors * V::kLanes <= dims; d += kVectors * V::kLanes) {
      Queries<kQueries, kVectors>(w, v, first, count, begin, end, d, dims, values);
    }
    for (; d < dims; d += V::kLanes) {
      Queries<kQueries, 1>(w, v, first, count, begin, end, d, dims, values);
    }
  }

 private:
  template <int kQ, int kD, typename Values>
  static void Queries(const Weights& w, const Values& v, int first, int count, int begin, int end,
                      int d, int dims, float* values) {
    for (; count >= kQ; first += kQ, count -= kQ) {
      Product<kQ, kD>(w, v, first, begin, end, d, dims, values);
    }
    if constexpr (kQ > 1) Queries<kQ / 2, kD>(w, v, first, count, begin, end, d, dims, values);
  }

  template <int kQ, int kD, typename Values>
  static void Product(const Weights& w, const Values& v, int first, int begin, int end, int d,
                      int dims, float* values) {
    values += static_cast<int64_t>(first) * dims + d;
    F sum[kQ][kD];
    for (int i = 0; i < kQ; ++i) {
      const F correction = V::Set1(w.correction[first + i]);
      for (int n = 0; n < kD; ++n) {
        sum[i][n] = V::Mul(V::Load(values + i * dims + n * V::kLanes), correction);
      }
    }
    for (int j = begin; j < end; ++j) {
      F row[kD];
      for (int n = 0; n < kD; ++n) row[n] = v.Load(j, d + n * V::kLanes);
      v.ReadAhead(j, d);
      for (int i = 0; i < kQ; ++i) {
        const F weight = V::Set1(w.p[j * w.columns + first + i]);
        for (int n = 0; n < kD; ++n) sum[i][n] = V::MulAdd(weight, row[n], sum[i][n]);
      }
    }
    for (int i = 0; i < kQ; ++i) {
      for (int n = 0; n < kD; ++n) V::Store(values + i * dims + n * V::kLanes, sum[i][n]);
    }
  }
};

}  // namespace strata::compute
