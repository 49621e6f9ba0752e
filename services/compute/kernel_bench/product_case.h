// One matrix product to be timed, with random weights, through the interface that models use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/quant/tensor_type.h"
#include "common/quant/weight_layout.h"
#include "services/compute/cpu/test_tensors.h"
#include "services/compute/ops/backend.h"

#include "absl/status/statusor.h"

namespace strata::compute {

struct ProductShape {
  TensorType type = TensorType::kF32;
  int64_t inputs = 2048;   // columns of a weight matrix
  int64_t outputs = 2048;  // rows of a weight matrix
  int64_t rows = 1;        // activation rows: 1 is decoding one stream, 128 a piece of a prompt
  int matrices = 1;        // different weight matrices, multiplied one after the other
  // Times that each is multiplied in a pass. More than one (up to 8, or a multiple of 8) needs a
  // back end of one thread: the products of one call share their output.
  int repeats = 1;
  quant::WeightLayout layout = quant::WeightLayout::kGguf;

  // Weights times rows of one pass.
  double products() const;
  // Of the weights of one pass.
  double bytes() const;
};

// More weights than any cache holds, so that a product of few rows reads them from memory.
ProductShape FromMemory(TensorType type, int64_t rows);
// Weights that stay in the second-level cache of one core: the speed of the arithmetic alone. For a
// back end of one thread.
ProductShape FromCache(TensorType type);

class ProductCase {
 public:
  // Error: no memory for the weights.
  static absl::StatusOr<std::unique_ptr<ProductCase>> Create(Backend* backend,
                                                             const ProductShape& shape);
  // One pass; returns its seconds. The backend is used by one thread at a time.
  double Run();

  // One weight matrix as in a file (all of them are alike), and the activations [rows, inputs].
  std::span<const std::byte> weight() const { return weight_.memory; }
  std::span<const float> activations() const {
    return {x_.Row(0), static_cast<size_t>(x_.tensor.rows * x_.tensor.cols)};
  }

 private:
  ProductCase(Backend* backend, const ProductShape& shape);

  Backend* backend_;
  ProductShape shape_;
  testing::Owned weight_;
  testing::Owned x_;
  testing::Owned y_;
  std::unique_ptr<Buffer> memory_;
  std::vector<Tensor> weights_;  // in the order of a pass
};

}  // namespace strata::compute
