// The portable kernels.
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/kernel_table.h"
#include "services/compute/cpu/simd/vec_portable.h"

namespace strata::compute {

const Kernels& ScalarKernels() {
  static const Kernels kernels = [] {
    Kernels k = {};
    k.name = "scalar";
    FillFloatKernels<VecPortable>(&k);
    return k;
  }();
  return kernels;
}

}  // namespace strata::compute
