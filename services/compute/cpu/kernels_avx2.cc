// Kernels for AVX2, FMA and F16C. This file alone is compiled for them: see CMakeLists.txt.
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/int8_avx2.h"
#include "services/compute/cpu/simd/int8_table.h"
#include "services/compute/cpu/simd/kernel_table.h"
#include "services/compute/cpu/simd/rows8_table.h"
#include "services/compute/cpu/simd/vec_avx2.h"

namespace strata::compute {

const Kernels& Avx2Kernels() {
  static const Kernels kernels = [] {
    Kernels k = {};
    k.name = "avx2";
    FillFloatKernels<VecAvx2>(&k);
    FillInt8Kernels<Int8Avx2, VecAvx2>(&k);
    FillRows8Kernels<Int8Avx2, Int8Avx2>(&k);
    return k;
  }();
  return kernels;
}

}  // namespace strata::compute
