// Puts the products of interleaved rows of one instruction set into a table of kernels. Types that
// are not here are put apart again before they are multiplied (cpu_products.cc).
#pragma once

#include "common/quant/tensor_type.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/lane_product.h"
#include "services/compute/cpu/simd/rows8.h"
#include "services/compute/cpu/simd/rows8_product.h"

namespace strata::compute {
namespace {

// Types of 32 or 64 weights.
template <typename Isa>
void FillRows8LaneKernels(Kernels* k) {
  const auto set = [k](TensorType type, ProductFn product) {
    k->rows8[static_cast<size_t>(type)] = product;
  };
  using enum TensorType;
  using Rows = InterleavedRows<Isa>;
  set(kQ4_0, &LaneProduct<Isa, LaneQ40, Rows>::Run);
  set(kQ4_1, &LaneProduct<Isa, LaneQ41, Rows>::Run);
  set(kIQ4_NL, &LaneProduct<Isa, LaneIQ4NL, Rows>::Run);
  set(kMXFP4, &LaneProduct<Isa, LaneMXFP4, Rows>::Run);
  set(kNVFP4, &LaneProduct<Isa, LaneNVFP4, Rows>::Run);
  set(kQ2_0, &LaneProduct<Isa, LaneQ20, Rows>::Run);
}

// Those and types of 256 weights, which gain with 256-bit vectors only (docs/performance.md,
// "Layouts").
template <typename Isa>
void FillRows8Kernels(Kernels* k) {
  FillRows8LaneKernels<Isa>(k);
  const auto set = [k](TensorType type, ProductFn product) {
    k->rows8[static_cast<size_t>(type)] = product;
  };
  using enum TensorType;
  set(kQ2_K, &Rows8Product<Isa, Rows8Q2K>::Run);
  set(kQ3_K, &Rows8Product<Isa, Rows8Q3K>::Run);
  set(kQ4_K, &Rows8Product<Isa, Rows8Q4K>::Run);
  set(kQ5_K, &Rows8Product<Isa, Rows8Q5K>::Run);
  set(kIQ4_XS, &Rows8Product<Isa, Rows8IQ4XS>::Run);
}

}  // namespace
}  // namespace strata::compute
