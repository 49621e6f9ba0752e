// Which type each tensor of a model gets when it is quantised, and why.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/gguf/tensor_info.h"
#include "common/quant/quantize_model.h"
#include "common/quant/tensor_type.h"

namespace strata::quant {

struct PlannedTensor {
  TensorType type;
  std::string note;  // as QuantizedTensor::note
};

// One entry per tensor. InvalidArgument for a type that cannot be written, or an override that no
// matrix matches.
absl::StatusOr<std::vector<PlannedTensor>> PlanQuantization(
    std::span<const gguf::TensorInfo> tensors, const QuantizeOptions& options);

// llama.cpp's number for "mostly `type`" in general.file_type. `type` is one CanEncode accepts.
uint32_t FileTypeOf(TensorType type);

}  // namespace strata::quant
