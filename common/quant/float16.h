// Conversions of the small floating-point formats that appear as scales and weights.
//
// All of them are exact in the direction of float, denormals, infinities and NaN included, and
// round to nearest (ties to even) in the other direction. Pure functions of the bits: they do not
// depend on the rounding mode or on flush-to-zero settings of the processor, so a kernel may run
// with denormals off and still see the right scale.
#pragma once

#include <bit>
#include <cstdint>

namespace strata::quant {

// IEEE 754 binary16: sign, 5 exponent bits (bias 15), 10 fraction bits.
constexpr float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) {  // infinity, NaN: all exponent bits
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  }
  if (magnitude >= 0x0400) {  // normal: move the fraction up, add the difference of the biases
    return std::bit_cast<float>(sign | ((magnitude << 13) + ((127 - 15) << 23)));
  }
  if (magnitude == 0) return std::bit_cast<float>(sign);
  // Denormal, fraction * 2^-24: shift its highest bit to the place of float's hidden bit.
  const int shift = std::countl_zero(magnitude) - 21;  // 1..10; bit 10 would be the hidden bit
  const uint32_t exponent = 127 - 15 + 1 - shift;
  return std::bit_cast<float>(sign | exponent << 23 | (magnitude << shift & 0x3ff) << 13);
}

constexpr uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN, made quiet
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and more round to infinity
  uint32_t fraction;                                  // value in units of 2^-shift of the result
  int shift;
  if (magnitude >= 0x38800000) {  // 2^-14 and more: a normal half
    fraction = magnitude - ((127 - 15) << 23);
    shift = 13;
  } else {
    const int exponent = static_cast<int>(magnitude >> 23);
    if (exponent < 102) return sign;  // below 2^-25: less than half of the smallest denormal
    fraction = (magnitude & 0x7fffff) | 0x800000;
    shift = 126 - exponent;  // 14..24
  }
  const uint32_t half_unit = 1u << (shift - 1);
  const uint32_t rest = fraction & ((half_unit << 1) - 1);
  uint32_t result = fraction >> shift;
  if (rest > half_unit || (rest == half_unit && (result & 1) != 0)) ++result;
  return sign | static_cast<uint16_t>(result);  // a carry moves into the exponent, as it should
}

// bfloat16: the upper half of a float.
constexpr float Bf16ToFloat(uint16_t bf16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16);
}

constexpr uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;  // NaN, made quiet
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// Half of an E8M0 scale (OCP MX: 2^(e - 127)), that is 2^(e - 128). MXFP4 weights are computed as
// twice the code (an integer) times half of the scale; half, so that e = 255 stays finite.
constexpr float E8m0ToHalfScale(uint8_t e) {
  if (e < 2) return std::bit_cast<float>(0x00200000u << e);  // 2^-128, 2^-127: denormal
  return std::bit_cast<float>((e - 1u) << 23);
}

// Half of an unsigned E4M3 scale (bias 7, 3 fraction bits), paired with doubled codes as above.
// The sign bit is ignored. 127, the NaN of E4M3, stands for 0: what llama.cpp makes of it.
constexpr float Ue4m3ToHalfScale(uint8_t bits) {
  const uint32_t exponent = bits >> 3 & 15;
  const uint32_t fraction = bits & 7;
  if (bits == 127) return 0;
  if (exponent == 0) return static_cast<float>(fraction) * 0x1p-10f;
  return std::bit_cast<float>((exponent + 127 - 8) << 23 | fraction << 20);
}

}  // namespace strata::quant
