#include "services/compute/models/ffn_block.h"

#include <array>

#include "common/base/status.h"

namespace strata::compute {

absl::StatusOr<FfnBlock> FfnBlock::Load(WeightLoader& loader, const FfnShape& shape, int layer) {
  FfnBlock block;
  block.shape_ = shape;
  const auto name = [&](std::string_view suffix) { return WeightLoader::InLayer(layer, suffix); };
  STRATA_ASSIGN_OR_RETURN(block.norm_, loader.Vector(name("ffn_norm.weight"), shape.hidden_size));
  STRATA_ASSIGN_OR_RETURN(block.gate_,
                          loader.Matrix(name("ffn_gate.weight"), shape.ff_size, shape.hidden_size));
  STRATA_ASSIGN_OR_RETURN(block.up_,
                          loader.Matrix(name("ffn_up.weight"), shape.ff_size, shape.hidden_size));
  STRATA_ASSIGN_OR_RETURN(block.down_,
                          loader.Matrix(name("ffn_down.weight"), shape.hidden_size, shape.ff_size));
  return block;
}

size_t FfnBlock::ScratchBytes(const FfnShape& shape, int rows) {
  return Scratch::Bytes(rows, shape.hidden_size) + 2 * Scratch::Bytes(rows, shape.ff_size);
}

void FfnBlock::Forward(Step& step) const {
  Backend& backend = step.backend;
  const Scratch::Scope scope(step.scratch);
  const Tensor h = step.scratch.Take(step.rows(), shape_.hidden_size);
  const Tensor gate = step.scratch.Take(step.rows(), shape_.ff_size);
  const Tensor up = step.scratch.Take(step.rows(), shape_.ff_size);
  backend.RmsNorm(step.x, norm_, shape_.norm_eps, h);
  backend.MatMul(h, std::array{gate_, up_}, {}, std::array{gate, up}, /*accumulate=*/false);
  backend.SwiGlu(gate, up, gate);
  backend.MatMul(gate, std::array{down_}, {}, std::array{step.x}, /*accumulate=*/true);
}

}  // namespace strata::compute
