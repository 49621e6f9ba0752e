// A model file with its matrices in another type, quantised by llama.cpp: any type that models come
// in, also those that we only read.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/quant/tensor_type.h"
#include "tests/oracle/llama_library.h"

namespace strata::oracle {

// Decodes every tensor of `in` that is not F32 and whose name begins with `prefix`, and writes it
// to `out` as `type`, without importance weights (all ones where llama.cpp wants some). All others
// are copied. The rows of those matrices must be whole numbers of blocks. Uses all processors: the
// codebook types take long.
absl::Status WriteRequantizedModel(const LlamaLibrary& llama, const std::string& in,
                                   const std::string& out, TensorType type,
                                   std::string_view prefix = "");

}  // namespace strata::oracle
