// Element-wise and row-wise kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace strata::compute {

template <typename V>
struct RowKernels {
  using F = typename V::F;

  static void Add(const float* x, float* y, int64_t n) {
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) {
      V::Store(y + i, V::Add(V::Load(y + i), V::Load(x + i)));
    }
    for (; i < n; ++i) y[i] += x[i];
  }

  static void RmsNorm(const float* x, const float* weight, float eps, int64_t n, float* out) {
    F squares = V::Zero();
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) {
      const F v = V::Load(x + i);
      squares = V::MulAdd(v, v, squares);
    }
    if (i < n) {
      const F v = V::LoadPartial(x + i, n - i);
      squares = V::MulAdd(v, v, squares);
    }
    const float mean = V::ReduceAdd(squares) / static_cast<float>(n);
    const float factor = 1.0f / std::sqrt(mean + eps);
    const F factors = V::Set1(factor);
    for (i = 0; i + V::kLanes <= n; i += V::kLanes) {
      F v = V::Mul(V::Load(x + i), factors);
      if (weight != nullptr) v = V::Mul(v, V::Load(weight + i));
      V::Store(out + i, v);
    }
    for (; i < n; ++i) {
      const float v = x[i] * factor;
      out[i] = weight != nullptr ? v * weight[i] : v;
    }
  }

  // silu(g) * u = g / (1 + exp(-g)) * u.
  static F SwiGluOf(F g, F u) {
    const F one = V::Set1(1.0f);
    return V::Mul(V::Div(g, V::Add(one, V::Exp(V::Sub(V::Zero(), g)))), u);
  }
  static void SwiGlu(const float* gate, const float* up, int64_t n, float* out) {
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) {
      V::Store(out + i, SwiGluOf(V::Load(gate + i), V::Load(up + i)));
    }
    if (i < n) {
      const F v = SwiGluOf(V::LoadPartial(gate + i, n - i), V::LoadPartial(up + i, n - i));
      V::StorePartial(out + i, v, n - i);
    }
  }

  static void Combine(const float* rows, int64_t stride, const float* weights, int count, int64_t n,
                      float* y) {
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) {
      F sum = V::Zero();
      for (int j = 0; j < count; ++j) {
        sum = V::MulAdd(V::Set1(weights[j]), V::Load(rows + j * stride + i), sum);
      }
      V::Store(y + i, V::Add(V::Load(y + i), sum));
    }
    if (i < n) {
      F sum = V::Zero();
      for (int j = 0; j < count; ++j) {
        sum = V::MulAdd(V::Set1(weights[j]), V::LoadPartial(rows + j * stride + i, n - i), sum);
      }
      V::StorePartial(y + i, V::Add(V::LoadPartial(y + i, n - i), sum), n - i);
    }
  }

  static void ToHalf(const float* x, int64_t n, uint16_t* out) {
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) V::StoreHalf(out + i, V::Load(x + i));
    if (i < n) {
      uint16_t rest[V::kLanes];
      V::StoreHalf(rest, V::LoadPartial(x + i, n - i));
      std::memcpy(out + i, rest, static_cast<size_t>(n - i) * sizeof(uint16_t));
    }
  }
};

}  // namespace strata::compute
