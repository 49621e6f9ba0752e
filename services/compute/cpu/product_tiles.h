// Sizes of the pieces that products are cut into.
#pragma once

#include <cstdint>

#include "services/compute/cpu/kernels.h"

namespace strata::compute {

// Outputs of a tile: a few tens of KiB of weights, enough to amortise taking a tile and few enough
// for an even share among threads. A multiple of every kernel's own tile height.
inline constexpr int kTileOutputs = 64;
// Activation rows of a tile: decoded weights are reused this often.
inline constexpr int kTileRows = kMostTileRows;

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace strata::compute
