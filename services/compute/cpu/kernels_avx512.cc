// Kernels for AVX-512 F, BW, DQ, VL and VNNI. This file alone is compiled for them.
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/int8_avx512.h"
#include "services/compute/cpu/simd/int8_table.h"
#include "services/compute/cpu/simd/kernel_table.h"
#include "services/compute/cpu/simd/vec_avx512.h"

namespace strata::compute {

const Kernels& Avx512Kernels() {
  static const Kernels kernels = [] {
    Kernels k = {};
    k.name = "avx512";
    FillFloatKernels<VecAvx512>(&k);
    FillInt8Kernels<Int8Avx512, VecAvx512>(&k);
    return k;
  }();
  return kernels;
}

}  // namespace strata::compute
