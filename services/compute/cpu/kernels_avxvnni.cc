// Kernels for processors that have AVX-VNNI besides AVX2. This file alone is compiled for them.
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/int8_avxvnni.h"
#include "services/compute/cpu/simd/int8_table.h"
#include "services/compute/cpu/simd/rows8_table.h"
#include "services/compute/cpu/simd/vec_avx2.h"

namespace strata::compute {

const Kernels& AvxVnniKernels() {
  static const Kernels kernels = [] {
    Kernels k = Avx2Kernels();
    k.name = "avxvnni";
    FillInt8Kernels<Int8AvxVnni, VecAvx2>(&k);
    FillRows8Kernels<Int8AvxVnni, Int8AvxVnni>(&k);
    return k;
  }();
  return kernels;
}

}  // namespace strata::compute
