// Where the experts of a mixture-of-experts model lie in its files.
//
// A layer's experts are stored together, expert by expert, in three-dimensional tensors
// blk.N.ffn_{gate,up,down}_exps.weight, or with gate and up fused in ffn_gate_up_exps (gate's rows
// first). The last dimension counts experts, so expert e of a tensor is one contiguous extent. The
// structs mirror strata.v1.ExpertGeometry.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/gguf/reader.h"

namespace strata::gguf {

// Expert e lies at offset + e * bytes_per_expert of file `file`.
struct ExpertPart {
  std::string_view tensor;  // its name; lives as long as the Model
  TensorType type = TensorType::kF32;
  uint32_t file = 0;  // index into ExpertGeometry::files
  uint64_t offset = 0;
  uint64_t bytes_per_expert = 0;
  uint64_t values_per_expert = 0;
  uint64_t row_bytes = 0;  // of one output's weights
};

struct ExpertLayer {
  uint32_t layer = 0;
  uint32_t experts = 0;
  std::vector<ExpertPart> parts;  // gate, up, down; or gate_up, down

  uint64_t bytes_per_expert() const;
  uint64_t values_per_expert() const;
};

struct ExpertGeometry {
  std::vector<std::string> files;
  std::vector<ExpertLayer> layers;  // only those with experts, ascending

  uint64_t total_bytes() const;
};

// A dense model has no layers. InvalidArgument names a layer whose tensors do not belong together.
absl::StatusOr<ExpertGeometry> ReadExpertGeometry(const Model& model);

// Of a tensor name "blk.N.SUFFIX"; -1 for other names.
int64_t LayerOf(std::string_view tensor_name);
// Whether the tensor holds experts that ReadExpertGeometry accounts for.
bool IsExpertTensor(std::string_view tensor_name);

}  // namespace strata::gguf
