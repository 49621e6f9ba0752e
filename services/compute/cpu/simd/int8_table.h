// Puts the int8 products of one instruction set into a table of kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/quant/tensor_type.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/codebook_formats.h"
#include "services/compute/cpu/simd/float_product.h"
#include "services/compute/cpu/simd/iq1_formats.h"
#include "services/compute/cpu/simd/lane_product.h"
#include "services/compute/cpu/simd/product256.h"
#include "services/compute/cpu/simd/product32.h"
#include "services/compute/cpu/simd/quantize.h"

namespace strata::compute {
namespace {

template <typename Isa, typename V>
size_t ProductScratch(int64_t inputs) {
  // The largest panels: groups of 16 with minima, and magnitudes beside flips.
  return std::max({FloatProduct<V>::ScratchBytes(inputs), sizeof(Panel256<Isa, FormatQ2K>),
                   sizeof(Panel256<Isa, FormatIQ4XS>),
                   sizeof(typename Product32<Isa, FormatQ80>::template Panel<true>),
                   sizeof(typename LaneProduct<Isa, LaneNVFP4, LaneRows<Isa>>::Panel)});
}

template <typename Isa, typename V>
void FillInt8Kernels(Kernels* k) {
  const auto set = [k](TensorType type, ActivationForm form, ProductFn product) {
    k->product[static_cast<size_t>(type)] = product;
    k->form[static_cast<size_t>(type)] = form;
  };
  using enum TensorType;
  constexpr ActivationForm kInt8x32 = ActivationForm::kInt8x32;
  constexpr ActivationForm kInt8x256 = ActivationForm::kInt8x256;
  set(kQ2_K, kInt8x256, &Product256<Isa, FormatQ2K>::Run);
  set(kQ3_K, kInt8x256, &Product256<Isa, FormatQ3K>::Run);
  set(kQ4_K, kInt8x256, &Product256<Isa, FormatQ4K>::Run);
  set(kQ5_K, kInt8x256, &Product256<Isa, FormatQ5K>::Run);
  set(kQ6_K, kInt8x256, &Product256<Isa, FormatQ6K>::Run);
  set(kIQ4_XS, kInt8x256, &Product256<Isa, FormatIQ4XS>::Run);
  set(kIQ2_XXS, kInt8x256, &Product256<Isa, FormatIQ2XXS>::Run);
  set(kIQ2_XS, kInt8x256, &Product256<Isa, FormatIQ2XS>::Run);
  set(kIQ2_S, kInt8x256, &Product256<Isa, FormatIQ2S>::Run);
  set(kIQ3_XXS, kInt8x256, &Product256<Isa, FormatIQ3XXS>::Run);
  set(kIQ3_S, kInt8x256, &Product256<Isa, FormatIQ3S>::Run);
  set(kIQ1_S, kInt8x256, &Product256<Isa, FormatIQ1S>::Run);
  set(kIQ1_M, kInt8x256, &Product256<Isa, FormatIQ1M>::Run);
  set(kTQ2_0, kInt8x256, &Product256<Isa, FormatTQ20>::Run);
  set(kQ4_0, kInt8x32, &LaneProduct<Isa, LaneQ40, LaneRows<Isa>>::Run);
  set(kQ4_1, kInt8x32, &LaneProduct<Isa, LaneQ41, LaneRows<Isa>>::Run);
  set(kQ5_0, kInt8x32, &Product32<Isa, FormatQ50>::Run);
  set(kQ5_1, kInt8x32, &Product32<Isa, FormatQ51>::Run);
  set(kQ8_0, kInt8x32, &Product32<Isa, FormatQ80>::Run);
  set(kIQ4_NL, kInt8x32, &LaneProduct<Isa, LaneIQ4NL, LaneRows<Isa>>::Run);
  set(kMXFP4, kInt8x32, &LaneProduct<Isa, LaneMXFP4, LaneRows<Isa>>::Run);
  set(kNVFP4, kInt8x32, &LaneProduct<Isa, LaneNVFP4, LaneRows<Isa>>::Run);
  set(kQ2_0, ActivationForm::kInt8x32Quads, &LaneProduct<Isa, LaneQ20, LaneRows<Isa>>::Run);
  k->product_scratch = &ProductScratch<Isa, V>;
  k->quantize32 = &Quantize::Row32;
  k->quantize32_quads = &Quantize::Row32Quads;
  k->quantize256 = &Quantize::Row256;
}

}  // namespace
}  // namespace strata::compute
