// Float vectors of four lanes with NEON; the interface is explained in vec_portable.h.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "services/compute/cpu/simd/exp2_series.h"

namespace strata::compute {

struct VecNeon {
  using Short = VecNeon;
  static constexpr int kLanes = 4;
  static constexpr int kRegisters = 32;
  using F = float32x4_t;

  static F Zero() { return vdupq_n_f32(0); }
  static F Set1(float x) { return vdupq_n_f32(x); }
  static F Load(const float* p) { return vld1q_f32(p); }
  static void Store(float* p, F x) { vst1q_f32(p, x); }
  static F LoadPartial(const float* p, int64_t n) {
    float lanes[kLanes] = {};
    std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
    return Load(lanes);
  }
  static void StorePartial(float* p, F x, int64_t n) {
    float lanes[kLanes];
    Store(lanes, x);
    std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
  }
  static F LoadHalf(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static void StoreHalf(uint16_t* p, F x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
  static F LoadBf16(const uint16_t* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
  }
  static F LoadBytes(const int8_t* p) {
    int32_t bytes = 0;
    std::memcpy(&bytes, p, sizeof(bytes));
    const int8x8_t eight = vreinterpret_s8_s32(vdup_n_s32(bytes));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(eight))));
  }
  static F Add(F a, F b) { return vaddq_f32(a, b); }
  static F Sub(F a, F b) { return vsubq_f32(a, b); }
  static F Mul(F a, F b) { return vmulq_f32(a, b); }
  static F Div(F a, F b) { return vdivq_f32(a, b); }
  static F MulAdd(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static float ReduceAdd(F x) { return vaddvq_f32(x); }
  static F Max(F a, F b) { return vmaxq_f32(a, b); }
  static float ReduceMax(F x) { return vmaxvq_f32(x); }
  static float First(F x) { return vgetq_lane_f32(x, 0); }
  static void Transpose(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
    const float32x4x2_t a = vtrnq_f32(Load(in), Load(in + in_stride));
    const float32x4x2_t b = vtrnq_f32(Load(in + 2 * in_stride), Load(in + 3 * in_stride));
    const auto low = [](F x, F y) { return vcombine_f32(vget_low_f32(x), vget_low_f32(y)); };
    const auto high = [](F x, F y) { return vcombine_f32(vget_high_f32(x), vget_high_f32(y)); };
    Store(out, low(a.val[0], b.val[0]));
    Store(out + out_stride, low(a.val[1], b.val[1]));
    Store(out + 2 * out_stride, high(a.val[0], b.val[0]));
    Store(out + 3 * out_stride, high(a.val[1], b.val[1]));
  }
  // As in vec_avx2.h. NaN passes through max and min.
  static F Exp(F x) {
    x = vminq_f32(vmaxq_f32(x, Set1(-105)), Set1(89));
    const F n = vrndnq_f32(Mul(x, Set1(1.44269504f)));
    F r = vfmsq_f32(x, n, Set1(0.693145752f));
    r = vfmsq_f32(r, n, Set1(1.42860677e-6f));
    F p = Set1(1.0f / 5040);
    for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
      p = MulAdd(p, r, Set1(c));
    }
    const int32x4_t exponent = vcvtq_s32_f32(n);
    const int32x4_t half = vshrq_n_s32(exponent, 1);
    return Mul(Mul(p, PowerOfTwo(half)), PowerOfTwo(vsubq_s32(exponent, half)));
  }
  // As in vec_avx2.h.
  static F Exp2(F x) {
    const F lowest = Set1(-126);
    const F above = vmaxq_f32(x, lowest);
    const F n = vrndnq_f32(above);
    const F r = Sub(above, n);
    const F p = Exp2Series<VecNeon>(r);
    const int32x4_t exponent = vshlq_n_s32(vcvtq_s32_f32(n), 23);
    const int32x4_t power = vaddq_s32(vreinterpretq_s32_f32(p), exponent);
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_s32(power), vcltq_f32(x, lowest)));
  }

 private:
  static F PowerOfTwo(int32x4_t n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
  }
};

}  // namespace strata::compute
