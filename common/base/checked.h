// Arithmetic on sizes that come from outside: overflow gives an empty optional, never a wrapped
// value.
#pragma once

#include <cstdint>
#include <optional>

namespace strata {

inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// Smallest multiple of `alignment` (a power of two) that is >= value.
inline std::optional<uint64_t> CheckedAlignUp(uint64_t value, uint64_t alignment) {
  const std::optional<uint64_t> padded = CheckedAdd(value, alignment - 1);
  if (!padded) return std::nullopt;
  return *padded & ~(alignment - 1);
}

}  // namespace strata
