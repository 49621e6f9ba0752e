// A view of a two-dimensional tensor in device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/quant/tensor_type.h"
#include "common/quant/weight_layout.h"

namespace strata::compute {

// Does not own memory. `data` is an address of the back end's device: only the back end may
// dereference it (on the CPU back end it happens to be a host address). Rows are contiguous, each
// row holds `cols` values in the blocks of `type`; weights may have another layout than that of
// files.
struct Tensor {
  TensorType type = TensorType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  size_t row_bytes = 0;  // distance between rows
  std::byte* data = nullptr;
  quant::WeightLayout layout = quant::WeightLayout::kGguf;

  bool empty() const { return data == nullptr; }
  // Rows [first, first + count) as a view; multiples of eight if the layout is kRows8.
  Tensor Rows(int64_t first, int64_t count) const {
    return {type, count, cols, row_bytes, data + static_cast<size_t>(first) * row_bytes, layout};
  }
};

}  // namespace strata::compute
