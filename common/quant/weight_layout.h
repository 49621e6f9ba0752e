// How the rows of a weight matrix lie in memory.
//
// kGguf: row after row, as in the file.
//
// kRows8: eight rows side by side, for kernels whose vectors have a row in each lane: one load of
// an activation serves eight rows, nothing is summed across lanes, scales load as vectors. The
// same bytes in another order. A block of B bytes is cut into elements of four bytes and one of the
// odd one or two that B leaves, which is the block's first or last (the scale: OddBytesLast). The
// eight blocks number b of rows 8 k to 8 k + 7 lie at 8 (k * row_bytes + b * B); in there, the
// element of s bytes at offset o of row 8 k + r lies at 8 o + s r.
//
// A matrix of k * 8 rows takes as many bytes as in kGguf, and views of rows 8 i to 8 j are where
// they were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/quant/tensor_type.h"

namespace strata::quant {

enum class WeightLayout : uint8_t { kGguf, kRows8 };

inline constexpr uint32_t kWeightLayouts = 2;  // numbers are written into files: 0, 1

inline constexpr int kInterleavedRows = 8;

// "gguf", "rows8".
std::string_view NameOf(WeightLayout layout);

// Whether products with weights of this type are faster if eight rows are interleaved: the same for
// all instruction sets with kernels for them (services/compute/cpu/simd/rows8_table.h). The others
// are put apart again before they are multiplied.
bool GainsFromRows8(TensorType type);

// From kGguf to kRows8 and back; `rows` is a multiple of eight. `from` and `to` do not overlap.
void InterleaveRows(TensorType type, int64_t rows, size_t row_bytes, const std::byte* from,
                    std::byte* to);
void DeinterleaveRows(TensorType type, int64_t rows, size_t row_bytes, const std::byte* from,
                      std::byte* to);
// One row of a kRows8 matrix as it is in the file.
void ExtractRow(TensorType type, int64_t row, size_t row_bytes, const std::byte* matrix,
                std::byte* to);

}  // namespace strata::quant
