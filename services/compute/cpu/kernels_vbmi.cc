// Kernels for processors that have VBMI besides what kernels_avx512.cc needs: the i-quants'
// codebooks fit into registers. This file alone is compiled for them.
#include "common/quant/tensor_type.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/codebook512.h"
#include "services/compute/cpu/simd/codebook_lanes.h"
#include "services/compute/cpu/simd/codebook_vbmi.h"
#include "services/compute/cpu/simd/int8_avx512.h"
#include "services/compute/cpu/simd/product256.h"

namespace strata::compute {
namespace {

// Large codebooks: their entries are loaded one by one, which up to four rows of activations, Few,
// is faster than panels, Many.
template <typename Few, typename Many = Few>
void FewRowsApart(const ProductTile& tile) {
  if (tile.row_count <= 4) {
    Product256<Int8Avx512, Few>::RunFew(tile);
  } else {
    Product256<Int8Avx512, Many>::RunMany(tile);
  }
}

}  // namespace

const Kernels& VbmiKernels() {
  static const Kernels kernels = [] {
    Kernels k = Avx512Kernels();
    k.name = "avx512vbmi";
    Iq1Entries::Fill();
    const auto set = [&k](TensorType type, ProductFn product) {
      k.product[static_cast<size_t>(type)] = product;
    };
    using enum TensorType;
    set(kIQ2_XXS, &Product256<Int8Avx512, LaneFormat<LanesIQ2XXS>>::Run);
    set(kIQ2_XS, &Product256<Int8Avx512, LaneFormat<LanesIQ2XS>>::Run);
    set(kIQ2_S, &FewRowsApart<Iq2S512, WholeFormat<WholeIQ2S>>);
    set(kIQ3_XXS, &Product256<Int8Avx512, LaneFormat<LanesIQ3XXS>>::Run);
    set(kIQ3_S, &Product256<Int8Avx512, WholeFormat<WholeIQ3S>>::Run);
    set(kIQ1_S, &FewRowsApart<Iq1S512>);
    set(kIQ1_M, &FewRowsApart<Iq1M512>);
    return k;
  }();
  return kernels;
}

}  // namespace strata::compute
