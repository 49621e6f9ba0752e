// What a GGUF file says about one tensor.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "common/quant/tensor_type.h"

namespace strata::gguf {

struct TensorInfo {
  std::string_view name;  // lives as long as the Model
  TensorType type = TensorType::kF32;
  uint32_t n_dims = 0;
  // dims[0] is contiguous: a matrix [out, in] has dims {in, out}. Unused dimensions are 1, none is
  // 0, and the product fits in 63 bits.
  std::array<uint64_t, 4> dims = {1, 1, 1, 1};
  uint32_t file = 0;    // index into Model::files()
  uint64_t offset = 0;  // from the start of that file
  uint64_t bytes = 0;

  uint64_t cols() const { return dims[0]; }
  uint64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  uint64_t values() const { return cols() * rows(); }
};

}  // namespace strata::gguf
