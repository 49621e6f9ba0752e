// Kernels for AVX-512 F, BW, DQ, VL and VNNI. This file alone is compiled for them.
#include "common/quant/tensor_type.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/int8_avx512.h"
#include "services/compute/cpu/simd/int8_avxvnni.h"
#include "services/compute/cpu/simd/int8_table.h"
#include "services/compute/cpu/simd/kernel_table.h"
#include "services/compute/cpu/simd/rows8_table.h"
#include "services/compute/cpu/simd/vec_avx512.h"
#include "services/compute/cpu/simd/wide_formats.h"

namespace strata::compute {

const Kernels& Avx512Kernels() {
  static const Kernels kernels = [] {
    Kernels k = {};
    k.name = "avx512";
    FillFloatKernels<VecAvx512>(&k);
    FillInt8Kernels<Int8Avx512, VecAvx512>(&k);
    FillRows8Kernels<Int8AvxVnni, Int8Avx512>(&k);
    const auto set = [&k](TensorType type, ProductFn product) {
      k.product[static_cast<size_t>(type)] = product;
    };
    set(TensorType::kQ2_K, &Product256<Int8Avx512, WideQ2K>::Run);
    set(TensorType::kIQ4_XS, &Product256<Int8Avx512, WideIQ4XS>::Run);
    return k;
  }();
  return kernels;
}

}  // namespace strata::compute
