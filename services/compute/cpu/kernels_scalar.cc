// The portable kernels.
#include <cmath>

#include "common/quant/decode.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/attention_tile.h"
#include "services/compute/cpu/simd/float_product.h"
#include "services/compute/cpu/simd/row_kernels.h"
#include "services/compute/cpu/simd/vec_portable.h"

namespace strata::compute {
namespace {

using V = VecPortable;

Kernels Make() {
  Kernels k = {};
  k.name = "scalar";
  for (const TensorTypeInfo& info : AllTensorTypes()) {
    k.product[static_cast<size_t>(info.type)] = &FloatProduct<V>::Run;
  }
  k.product_scratch = &FloatProduct<V>::ScratchBytes;
  k.add = &RowKernels<V>::Add;
  k.rms_norm = &RowKernels<V>::RmsNorm;
  k.swiglu = &RowKernels<V>::SwiGlu;
  k.combine = &RowKernels<V>::Combine;
  k.to_half = &RowKernels<V>::ToHalf;
  k.attention = &AttentionKernel<V>::Run;
  k.attention_scratch = &AttentionKernel<V>::ScratchBytes;
  return k;
}

}  // namespace

const Kernels& ScalarKernels() {
  static const Kernels kernels = Make();
  return kernels;
}

}  // namespace strata::compute
