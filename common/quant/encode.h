// Quantising rows of floats.
//
// The encoder minimises the squared error of the decoded row. It searches the scales of every group
// and refines them by least squares against the chosen codes; no statistics of activations are
// used. The result depends on the input only, not on the processor or on the other rows. Weights
// that were quantised to the same type before come back exactly (Q2_K to Q5_K: nearly, as a group
// that does not use its whole range of codes is ambiguous).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/status.h"
#include "common/quant/tensor_type.h"

namespace strata::quant {

// F32, F16, BF16, Q8_0, Q4_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4.
bool CanEncode(TensorType type);

// Encodes `n` floats, a multiple of the type's block, into RowBytes(type, n) bytes at `out`.
// Unimplemented if CanEncode refuses the type; InvalidArgument for a partial block, a value that is
// not finite, or one too large for the type's scales; then `out` is unspecified. Thread-safe.
absl::Status EncodeRow(TensorType type, const float* x, int64_t n, std::byte* out);

}  // namespace strata::quant
