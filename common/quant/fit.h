// Scale search for one group of weights: which scale (and minimum) lets the codes of a grid come
// nearest to the weights, in the sum of squared errors.
//
// For given codes q the best scale is the least-squares one. For given scales the best codes are
// the nearest ones. So: start from a fan of scales around the one that just covers the largest
// weight, give each its codes, score them by the error of their least-squares scale, and let the
// winner alternate between the two steps until it stops improving.
#pragma once

#include <algorithm>
#include <cmath>

#include "common/quant/grid.h"

namespace strata::quant {

// Weights below this are zero to every type here: the smallest half-precision scale is 6e-8. Keeps
// squares and reciprocals inside the range of a float.
inline constexpr float kTiny = 1e-12F;

// Relative error up to which numbers count as multiples of one another: a few roundings.
inline constexpr float kExactness = 4e-6F;

// The element of largest magnitude, with its sign.
inline float Extreme(const float* x, int n) {
  float extreme = 0;
  for (int i = 0; i < n; ++i) {
    if (std::abs(x[i]) > std::abs(extreme)) extreme = x[i];
  }
  return extreme;
}

// A unit u such that every x[i] is u times a value of the grid, or 0 if there is none. Weights that
// were quantised before have one, and taking it keeps them exact. Larger values of the grid are
// tried first: quantisers use the range they have.
template <typename Grid, int kCount>
float ExactUnit(const float* x, float extreme) {
  for (int i = 0; i < Grid::kCodes; ++i) {
    // From both ends inwards.
    const float value = Grid::Value(i % 2 == 0 ? i / 2 : Grid::kCodes - 1 - i / 2);
    if (value == 0) continue;
    const float inverse = value / extreme;
    const float tolerance = kExactness * std::abs(value);
    bool exact = true;
    for (int j = 0; j < kCount && exact; ++j) {
      const float r = x[j] * inverse;
      exact = std::abs(r - Grid::Value(Grid::Code(r))) <= tolerance;
    }
    if (exact) return extreme / value;
  }
  return 0;
}

// Least squares of x = u * q for codes that are given as the nearest ones to x * inverse.
struct ScaleSums {
  float xq = 0;
  float qq = 0;
  // How much of sum(x^2) the best u explains; more is better.
  float gain() const { return qq > 0 ? xq * xq / qq : 0; }
  float unit() const { return qq > 0 ? xq / qq : 0; }
};

template <typename Grid, int kCount>
ScaleSums SumsFor(const float* x, float inverse) {
  ScaleSums sums;
  for (int i = 0; i < kCount; ++i) {
    const float q = Grid::Value(Grid::Code(x[i] * inverse));
    sums.xq += x[i] * q;
    sums.qq += q * q;
  }
  return sums;
}

// The unit u (of either sign, 0 for zero weights) that minimises sum((x - u * value)^2).
template <typename Grid, int kCount>
float FitScale(const float* x) {
  const float extreme = Extreme(x, kCount);
  if (std::abs(extreme) < kTiny) return 0;
  if (const float unit = ExactUnit<Grid, kCount>(x, extreme); unit != 0) return unit;
  ScaleSums best;
  for (int step = -8; step <= 12; ++step) {
    const float image = Grid::kExtreme + Grid::kReach * 0.1F * static_cast<float>(step);
    for (const float sign : {-1.0F, 1.0F}) {
      const ScaleSums sums = SumsFor<Grid, kCount>(x, sign * image / extreme);
      if (sums.gain() > best.gain()) best = sums;
    }
  }
  for (int round = 0; round < 4; ++round) {
    const ScaleSums next = SumsFor<Grid, kCount>(x, 1.0F / best.unit());
    if (!(next.gain() > best.gain())) break;
    best = next;
  }
  return best.unit();
}

// x = scale * q - min, with q = 0..kMaxCode, min >= 0.
struct ScaleAndMin {
  float scale = 0;
  float min = 0;
};

struct AffineSums {
  float q = 0;
  float qq = 0;
  float xq = 0;
};

// The best scale and minimum for the codes nearest to (x + min) / scale, and their error.
template <int kMaxCode, int kCount>
ScaleAndMin RefineAffine(const float* x, float sum_x, float sum_xx, float inverse, float min,
                         float* error) {
  AffineSums sums;
  for (int i = 0; i < kCount; ++i) {
    const auto q = static_cast<float>(LinearGrid<0, kMaxCode>::Code((x[i] + min) * inverse));
    sums.q += q;
    sums.qq += q * q;
    sums.xq += x[i] * q;
  }
  constexpr auto kN = static_cast<float>(kCount);
  const float determinant = kN * sums.qq - sums.q * sums.q;
  ScaleAndMin fit;
  if (determinant > 0) {
    fit.scale = (kN * sums.xq - sum_x * sums.q) / determinant;
    fit.min = (sums.q * sums.xq - sums.qq * sum_x) / determinant;
  }
  if (determinant <= 0 || fit.min < 0) {
    fit.min = 0;
    fit.scale = sums.qq > 0 ? sums.xq / sums.qq : 0;
  }
  // sum((x - scale q + min)^2), expanded
  *error = sum_xx - 2 * fit.scale * sums.xq + 2 * fit.min * sum_x +
           fit.scale * fit.scale * sums.qq - 2 * fit.scale * fit.min * sums.q +
           kN * fit.min * fit.min;
  return fit;
}

// A scale and minimum that give every weight exactly (to rounding), or a scale of 0. `low` and
// `high` are the smallest and largest weight. The smallest weight is taken for code 0.
template <int kMaxCode, int kCount>
ScaleAndMin ExactScaleAndMin(const float* x, float low, float high) {
  if (low > 0 || high - low < kTiny) return {};
  for (int k = kMaxCode; k > 0; --k) {
    const float inverse = static_cast<float>(k) / (high - low);
    bool exact = true;
    for (int i = 0; i < kCount && exact; ++i) {
      const float r = (x[i] - low) * inverse;
      exact = std::abs(r - static_cast<float>(RoundToInt(r))) <= kExactness * static_cast<float>(k);
    }
    if (exact) return {(high - low) / static_cast<float>(k), -low};
  }
  return {};
}

template <int kMaxCode, int kCount>
ScaleAndMin FitScaleAndMin(const float* x) {
  float low = x[0];
  float high = x[0];
  float sum_x = 0;
  float sum_xx = 0;
  for (int i = 0; i < kCount; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    sum_x += x[i];
    sum_xx += x[i] * x[i];
  }
  if (const auto exact = ExactScaleAndMin<kMaxCode, kCount>(x, low, high); exact.scale > 0) {
    return exact;
  }
  low = std::min(low, 0.0F);  // zero belongs to the range: the minimum is not negative
  if (high - low < kTiny) return {0, -low};
  ScaleAndMin best{(high - low) / kMaxCode, -low};
  float best_error = INFINITY;
  for (int step = -6; step <= 14; ++step) {
    const float image = kMaxCode + 0.1F * static_cast<float>(step);
    float error = 0;
    const ScaleAndMin fit =
        RefineAffine<kMaxCode, kCount>(x, sum_x, sum_xx, image / (high - low), -low, &error);
    if (error < best_error && fit.scale > 0) {
      best_error = error;
      best = fit;
    }
  }
  for (int round = 0; round < 4; ++round) {
    float error = 0;
    const ScaleAndMin fit =
        RefineAffine<kMaxCode, kCount>(x, sum_x, sum_xx, 1 / best.scale, best.min, &error);
    if (!(error < best_error) || fit.scale <= 0) break;
    best_error = error;
    best = fit;
  }
  return best;
}

}  // namespace strata::quant
