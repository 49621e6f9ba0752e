// Kernels for 64-bit ARM with the dot product extension. This file alone is compiled for it.
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/int8_neon.h"
#include "services/compute/cpu/simd/int8_table.h"
#include "services/compute/cpu/simd/kernel_table.h"
#include "services/compute/cpu/simd/vec_neon.h"

namespace strata::compute {

const Kernels& NeonKernels() {
  static const Kernels kernels = [] {
    Kernels k = {};
    k.name = "neon";
    FillFloatKernels<VecNeon>(&k);
    FillInt8Kernels<Int8Neon, VecNeon>(&k);
    return k;
  }();
  return kernels;
}

}  // namespace strata::compute
