// Rewriting a GGUF model with its weight matrices in another type.
//
// Matrices (2-D and 3-D tensors named *.weight) are converted; what is small and sensitive is not:
// norms, biases and other vectors, the router (ffn_gate_inp) and convolution kernels stay, or
// become, F32. A matrix whose rows are no whole number of blocks of the wanted type gets Q8_0
// instead, or F16 if that does not fit either. One that is quantised already, to no more bits than
// wanted, is copied: requantising would only lose.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/quant/tensor_type.h"

namespace strata::quant {

// The type of the matrices whose name matches: `pattern` is a tensor's name, with or without
// ".weight" at the end; '*' in it stands for any characters ("blk.*.ffn_down_exps").
struct TensorOverride {
  std::string pattern;
  TensorType type;
};

// Parses "PATTERN=TYPE", as on a command line.
absl::StatusOr<TensorOverride> ParseTensorOverride(std::string_view text);

struct QuantizedTensor {
  std::string name;
  TensorType from;
  TensorType to;
  uint64_t bytes_before = 0;
  uint64_t bytes_after = 0;
  std::string note;  // why it is not the wanted type; empty if it is
};

struct QuantizeOptions {
  TensorType type = TensorType::kQ5_K;  // any type that CanEncode accepts
  // The last one that matches a matrix counts; each must match at least one.
  std::vector<TensorOverride> overrides;
  int threads = 0;                                        // 0: one per processor
  std::function<void(const QuantizedTensor&)> on_tensor;  // after each tensor; may be empty
};

struct QuantizeReport {
  std::vector<QuantizedTensor> tensors;  // in file order
  uint64_t bytes_before = 0;             // of all tensors
  uint64_t bytes_after = 0;
};

// Reads the model at `in` (single or split) and writes one file `out`, which appears only when it
// is complete. The result does not depend on the number of threads. Memory: a few times 4 MiB,
// whatever the size of the model.
absl::StatusOr<QuantizeReport> QuantizeModel(const std::string& in, const std::string& out,
                                             const QuantizeOptions& options);

}  // namespace strata::quant
