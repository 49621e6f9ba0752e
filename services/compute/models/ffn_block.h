// Dense feed-forward part of a pre-norm decoder layer: x += (silu(h Wg) * (h Wu)) Wd, h = norm(x).
#pragma once

#include "services/compute/models/step.h"
#include "services/compute/models/weights.h"

#include "absl/status/statusor.h"

namespace strata::compute {

struct FfnShape {
  int hidden_size = 0;
  int ff_size = 0;
  float norm_eps = 0;
};

class FfnBlock {
 public:
  // Tensors blk.<layer>.ffn_{norm,gate,up,down}.
  static absl::StatusOr<FfnBlock> Load(WeightLoader& loader, const FfnShape& shape, int layer);

  void Forward(Step& step) const;
  static size_t ScratchBytes(const FfnShape& shape, int rows);

 private:
  FfnShape shape_;
  Tensor norm_, gate_, up_, down_;
};

}  // namespace strata::compute
