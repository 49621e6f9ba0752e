// Fitting a superblock: groups of weights whose scales are themselves small integers times one
// (or, with minima, two) half-precision factors.
//
// Every group first finds its own best real-valued scale (fit.h). The factor follows from the
// largest of them; each group then takes the integer scale, out of those next to its wish, that
// gives the least error with the factor as stored; and the factor is refitted by least squares to
// the codes so chosen. The last two steps repeat while they help.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "common/quant/fit.h"
#include "common/quant/float16.h"
#include "common/quant/grid.h"

namespace strata::quant {

inline constexpr int kRefinements = 3;

// The factor to begin with: one of which all wishes are whole multiples if there is one (the
// weights were quantised before), otherwise the largest wish gets the integer of largest magnitude.
template <int kLow, int kHigh, size_t kGroups>
float StartFactor(const std::array<float, kGroups>& wish) {
  const float extreme = Extreme(wish.data(), kGroups);
  if (std::abs(extreme) < kTiny) return 0;
  const float unit = ExactUnit<LinearGrid<kLow, kHigh>, kGroups>(wish.data(), extreme);
  if (unit != 0) return unit;
  return extreme / (kHigh > -kLow ? kHigh : kLow);
}

// w = d * scale[g] * Grid::Value(code)
template <int kGroups, int kCount>
struct SymmetricSuperblock {
  uint16_t d = 0;  // half
  std::array<int, kGroups> scale{};
  std::array<uint8_t, kGroups * kCount> code{};
  float error = INFINITY;
};

// Nearest codes for one group at a given unit; returns the squared error.
template <typename Grid, int kCount>
float CodeGroup(const float* x, float unit, uint8_t* code) {
  const float inverse = unit == 0 ? 0 : 1 / unit;
  float error = 0;
  for (int i = 0; i < kCount; ++i) {
    code[i] = static_cast<uint8_t>(Grid::Code(x[i] * inverse));
    const float rest = x[i] - unit * Grid::Value(code[i]);
    error += rest * rest;
  }
  return error;
}

// kLowScale: the most negative integer scale; the largest is -kLowScale - 1.
template <typename Grid, int kGroups, int kCount, int kLowScale>
SymmetricSuperblock<kGroups, kCount> FitSymmetric(const float* x) {
  using Block = SymmetricSuperblock<kGroups, kCount>;
  std::array<float, kGroups> wish;
  for (int g = 0; g < kGroups; ++g) wish[g] = FitScale<Grid, kCount>(x + g * kCount);
  Block best;
  best.code.fill(static_cast<uint8_t>(Grid::Code(0)));
  float factor = StartFactor<kLowScale, -kLowScale - 1>(wish);
  for (int round = 0; round < kRefinements; ++round) {
    Block next;
    next.d = FloatToHalf(factor);
    const float d = HalfToFloat(next.d);
    if (d == 0) break;
    next.error = 0;
    float xp = 0;  // least squares of x = d * p, p = scale * value
    float pp = 0;
    for (int g = 0; g < kGroups; ++g) {
      const float* xg = x + g * kCount;
      uint8_t* code = next.code.data() + g * kCount;
      const float ratio = std::clamp<float>(wish[g] / d, kLowScale, -kLowScale - 1);
      float group_error = INFINITY;
      for (int step = -1; step <= 1; ++step) {
        const int scale = std::clamp(RoundToInt(ratio) + step, kLowScale, -kLowScale - 1);
        std::array<uint8_t, kCount> trial;
        const float error =
            CodeGroup<Grid, kCount>(xg, d * static_cast<float>(scale), trial.data());
        if (error < group_error) {
          group_error = error;
          next.scale[g] = scale;
          std::copy(trial.begin(), trial.end(), code);
        }
      }
      next.error += group_error;
      for (int i = 0; i < kCount; ++i) {
        const float p = static_cast<float>(next.scale[g]) * Grid::Value(code[i]);
        xp += xg[i] * p;
        pp += p * p;
      }
    }
    if (!(next.error < best.error)) break;
    best = next;
    if (best.error == 0 || pp == 0) break;
    factor = xp / pp;
  }
  return best;
}

// w = d * scale[g] * code - dmin * min[g]
template <int kGroups, int kCount>
struct AffineSuperblock {
  uint16_t d = 0;     // half
  uint16_t dmin = 0;  // half
  std::array<int, kGroups> scale{};
  std::array<int, kGroups> min{};
  std::array<uint8_t, kGroups * kCount> code{};
  float error = INFINITY;
};

// One group of an AffineSuperblock.
template <int kCount>
struct AffineGroup {
  int scale = 0;
  int min = 0;
  std::array<uint8_t, kCount> code{};
  float error = INFINITY;
};

template <int kMaxCode, int kCount>
AffineGroup<kCount> CodeAffineGroup(const float* x, float d, float dmin, int scale, int min) {
  AffineGroup<kCount> group;
  group.scale = scale;
  group.min = min;
  group.error = 0;
  const float unit = d * static_cast<float>(scale);
  const float offset = dmin * static_cast<float>(min);
  const float inverse = unit == 0 ? 0 : 1 / unit;
  for (int i = 0; i < kCount; ++i) {
    const int code = LinearGrid<0, kMaxCode>::Code((x[i] + offset) * inverse);
    group.code[i] = static_cast<uint8_t>(code);
    const float rest = x[i] - (unit * static_cast<float>(code) - offset);
    group.error += rest * rest;
  }
  return group;
}

// The best integers for one group: scales next to the wish, each with the minimum that fits its
// codes best.
template <int kMaxCode, int kMaxScale, int kCount>
AffineGroup<kCount> BestAffineGroup(const float* x, ScaleAndMin wish, float d, float dmin) {
  constexpr auto kMax = static_cast<float>(kMaxScale);
  const int scale0 = d == 0 ? 0 : RoundToInt(std::clamp(wish.scale / d, 0.0F, kMax));
  const int min0 = dmin == 0 ? 0 : RoundToInt(std::clamp(wish.min / dmin, 0.0F, kMax));
  AffineGroup<kCount> best;
  for (int step = -1; step <= 1; ++step) {
    const int scale = std::clamp(scale0 + step, 0, kMaxScale);
    AffineGroup<kCount> group = CodeAffineGroup<kMaxCode, kCount>(x, d, dmin, scale, min0);
    if (group.error < best.error) best = group;
    if (dmin == 0) continue;
    float sum = 0;  // of unit * code - x, which the minimum should equal on average
    for (int i = 0; i < kCount; ++i) {
      sum += d * static_cast<float>(scale) * static_cast<float>(group.code[i]) - x[i];
    }
    const int min = RoundToInt(std::clamp(sum / (kCount * dmin), 0.0F, kMax));
    if (min == min0) continue;
    group = CodeAffineGroup<kMaxCode, kCount>(x, d, dmin, scale, min);
    if (group.error < best.error) best = group;
  }
  return best;
}

template <int kGroups, int kCount, int kMaxCode, int kMaxScale>
AffineSuperblock<kGroups, kCount> FitAffine(const float* x) {
  using Block = AffineSuperblock<kGroups, kCount>;
  std::array<float, kGroups> scale_wish;
  std::array<float, kGroups> min_wish;
  for (int g = 0; g < kGroups; ++g) {
    const auto fit = FitScaleAndMin<kMaxCode, kCount>(x + g * kCount);
    scale_wish[g] = fit.scale;
    min_wish[g] = fit.min;
  }
  float factor = StartFactor<0, kMaxScale>(scale_wish);
  float min_factor = StartFactor<0, kMaxScale>(min_wish);
  Block best;
  for (int round = 0; round < kRefinements; ++round) {
    Block next;
    next.d = FloatToHalf(factor);
    next.dmin = FloatToHalf(min_factor);
    const float d = HalfToFloat(next.d);
    const float dmin = HalfToFloat(next.dmin);
    next.error = 0;
    // Least squares of x = d * p - dmin * m, p = scale * code.
    float pp = 0;
    float pm = 0;
    float mm = 0;
    float xp = 0;
    float xm = 0;
    for (int g = 0; g < kGroups; ++g) {
      const float* xg = x + g * kCount;
      const auto group =
          BestAffineGroup<kMaxCode, kMaxScale, kCount>(xg, {scale_wish[g], min_wish[g]}, d, dmin);
      next.scale[g] = group.scale;
      next.min[g] = group.min;
      next.error += group.error;
      std::copy(group.code.begin(), group.code.end(), next.code.begin() + g * kCount);
      const auto m = static_cast<float>(group.min);
      for (int i = 0; i < kCount; ++i) {
        const auto p = static_cast<float>(group.scale * group.code[i]);
        pp += p * p;
        pm += p * m;
        mm += m * m;
        xp += xg[i] * p;
        xm += xg[i] * m;
      }
    }
    if (!(next.error < best.error)) break;
    best = next;
    if (best.error == 0) break;
    const float determinant = pp * mm - pm * pm;
    if (determinant > 1e-6F * pp * mm) {
      factor = (xp * mm - xm * pm) / determinant;
      min_factor = (xp * pm - xm * pp) / determinant;
    } else if (pp > 0 && mm == 0) {
      factor = xp / pp;
    } else {
      break;
    }
    if (factor < 0 || min_factor < 0) break;
  }
  return best;
}

}  // namespace strata::quant
