// Fills a table of kernels from the templates of this folder.
#pragma once

#include "common/quant/tensor_type.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/attention_tile.h"
#include "services/compute/cpu/simd/float_product.h"
#include "services/compute/cpu/simd/row_kernels.h"

namespace strata::compute {

// Everything with float vectors V; products of all types by way of decoded weights.
template <typename V>
void FillFloatKernels(Kernels* k) {
  for (const TensorTypeInfo& info : AllTensorTypes()) {
    const auto id = static_cast<size_t>(info.type);
    k->product[id] = &FloatProduct<V>::Decoded;
    k->form[id] = ActivationForm::kF32;
  }
  using enum TensorType;
  using P = FloatProduct<V>;
  k->product[static_cast<size_t>(kF32)] = &P::template InPlace<typename P::Float32>;
  k->product[static_cast<size_t>(kF16)] = &P::template Bits16Product<typename P::Float16>;
  k->product[static_cast<size_t>(kBF16)] = &P::template Bits16Product<typename P::Bfloat16>;
  k->product_scratch = &P::ScratchBytes;
  k->add = &RowKernels<V>::Add;
  k->rms_norm = &RowKernels<V>::RmsNorm;
  k->swiglu = &RowKernels<V>::SwiGlu;
  k->combine = &RowKernels<V>::Combine;
  k->to_half = &RowKernels<V>::ToHalf;
  k->attention = &AttentionKernel<V>::Run;
  k->attention_scratch = &AttentionKernel<V>::ScratchBytes;
}

}  // namespace strata::compute
