// Exact scalar decoding of tensor rows to floats, for every known tensor type.
//
// "Exact" means: the same float operations in the same order as llama.cpp's decoder, so the results
// are equal bit for bit (a NaN may differ in its payload). This is the reference for all kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/quant/tensor_type.h"

namespace strata::quant {

// Whether DecodeRow knows the type; false only for a value outside the enumeration, so a type read
// from a file is checked once, when the file is opened.
bool CanDecode(TensorType type);

// Decodes the first `n` values of a row: `n` is a multiple of the type's block, `row` holds
// RowBytes(type, n) bytes at any alignment, `out` has room for n floats. Integers and doubles are
// converted to the nearest float. Calling it with a type that CanDecode refuses, or with a partial
// block, is a programming error and stops the process. Thread-safe, no state.
void DecodeRow(TensorType type, const std::byte* row, float* out, int64_t n);

}  // namespace strata::quant
