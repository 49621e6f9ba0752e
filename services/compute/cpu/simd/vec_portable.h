// Float vectors of four lanes from the compiler's vector extension: runs on any processor.
//
// Every instruction set has a struct with this interface; the templates in this folder are written
// against it. Names are per instruction set, so no template instance is shared between translation
// units that are compiled for different processors.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/quant/float16.h"

namespace strata::compute {

struct VecPortable {
  using Short = VecPortable;  // shorter vectors of the same processor, or these; the same results
  static constexpr int kLanes = 4;
  static constexpr int kRegisters = 16;  // of this length
  using F = float __attribute__((vector_size(16)));

  static F Zero() { return F{}; }
  static F Set1(float x) { return F{x, x, x, x}; }
  static F Load(const float* p) {
    F x{};
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  static void Store(float* p, F x) { std::memcpy(p, &x, sizeof(x)); }
  // The first n < kLanes lanes; the others are zero.
  static F LoadPartial(const float* p, int64_t n) {
    F x{};
    std::memcpy(&x, p, static_cast<size_t>(n) * sizeof(float));
    return x;
  }
  static void StorePartial(float* p, F x, int64_t n) {
    std::memcpy(p, &x, static_cast<size_t>(n) * sizeof(float));
  }
  static F LoadHalf(const uint16_t* p) {
    F x{};
    for (int i = 0; i < kLanes; ++i) x[i] = quant::HalfToFloat(p[i]);
    return x;
  }
  static void StoreHalf(uint16_t* p, F x) {
    for (int i = 0; i < kLanes; ++i) p[i] = quant::FloatToHalf(x[i]);
  }
  static F LoadBf16(const uint16_t* p) {
    F x{};
    for (int i = 0; i < kLanes; ++i) x[i] = quant::Bf16ToFloat(p[i]);
    return x;
  }
  static F LoadBytes(const int8_t* p) {
    F x{};
    for (int i = 0; i < kLanes; ++i) x[i] = static_cast<float>(p[i]);
    return x;
  }
  static F Add(F a, F b) { return a + b; }
  static F Sub(F a, F b) { return a - b; }
  static F Mul(F a, F b) { return a * b; }
  static F Div(F a, F b) { return a / b; }
  // a * b + c; with or without an intermediate rounding, but always the same way.
  static F MulAdd(F a, F b, F c) { return a * b + c; }
  static float ReduceAdd(F x) { return (x[0] + x[2]) + (x[1] + x[3]); }
  static F Max(F a, F b) { return a > b ? a : b; }
  static float ReduceMax(F x) {
    const float a = x[0] > x[1] ? x[0] : x[1];
    const float b = x[2] > x[3] ? x[2] : x[3];
    return a > b ? a : b;
  }
  static float First(F x) { return x[0]; }
  // out[j][i] = in[i][j] for a square of kLanes; strides in floats.
  static void Transpose(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
    for (int i = 0; i < kLanes; ++i) {
      for (int j = 0; j < kLanes; ++j) out[j * out_stride + i] = in[i * in_stride + j];
    }
  }
  // To about one unit in the last place; zero and infinity where floats end.
  static F Exp(F x) {
    for (int i = 0; i < kLanes; ++i) x[i] = std::exp(x[i]);
    return x;
  }
  // 2^x for x <= 0, to two units in the last place; zero for x < -126, 1 for 0.
  static F Exp2(F x) {
    for (int i = 0; i < kLanes; ++i) x[i] = x[i] < -126 ? 0 : std::exp2(x[i]);
    return x;
  }
};

}  // namespace strata::compute
