// The int8 forms of an activation row.
//
// A block of B values (B = 32 or 256) becomes x[i] ~ d * q[i] with d = max|x| / 127 and q rounded
// to nearest, so the error of a value is at most max|x| / 254. A block whose largest magnitude is
// below kTinyBlock becomes zero: its reciprocal would overflow, and no model distinguishes it from
// zero. Not-a-number and infinity make the results of their own row undefined, and of no other row.
//
// A row is stored as separate arrays. Besides d and q it holds sums of q over 16 or 32 values: they
// multiply the minimum of weights of the form scale * q - min, and undo the offset of weights whose
// codes are stored unsigned.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata::compute {

inline constexpr float kTinyBlock = 0x1p-100f;

// Block of 32. `n` values.
struct Int8Row32 {
  const int8_t* q;         // [n]
  const float* d;          // [n / 32]
  const int32_t* sum;      // [n / 32] sum of the block's q
  const int32_t* shift;    // [n / 32] -128 * sum
  const int32_t* shift16;  // [n / 16] -128 * sum of 16 q

  static constexpr int kBlock = 32;
  static size_t Bytes(int64_t n) { return static_cast<size_t>(n + n / 32 * 20); }
  static Int8Row32 At(const std::byte* row, int64_t n) {
    Int8Row32 out;
    out.q = reinterpret_cast<const int8_t*>(row);
    out.d = reinterpret_cast<const float*>(row + n);
    out.sum = reinterpret_cast<const int32_t*>(out.d + n / 32);
    out.shift = out.sum + n / 32;
    out.shift16 = out.shift + n / 32;
    return out;
  }
};

// Block of 256.
struct Int8Row256 {
  const int8_t* q;         // [n]
  const float* d;          // [n / 256]
  const int32_t* shift16;  // [n / 16] -128 * sum of 16 q
  const int32_t* shift32;  // [n / 32] -128 * sum of 32 q
  const int16_t* sum16;    // [n / 16]
  const int16_t* sum32;    // [n / 32]

  static constexpr int kBlock = 256;
  static size_t Bytes(int64_t n) {
    return static_cast<size_t>(n + n / 256 * 4 + n / 16 * 4 + n / 32 * 4 + n / 16 * 2 + n / 32 * 2);
  }
  static Int8Row256 At(const std::byte* row, int64_t n) {
    Int8Row256 out;
    out.q = reinterpret_cast<const int8_t*>(row);
    out.d = reinterpret_cast<const float*>(row + n);
    out.shift16 = reinterpret_cast<const int32_t*>(out.d + n / 256);
    out.shift32 = out.shift16 + n / 16;
    out.sum16 = reinterpret_cast<const int16_t*>(out.shift32 + n / 32);
    out.sum32 = out.sum16 + n / 16;
    return out;
  }
};

}  // namespace strata::compute
