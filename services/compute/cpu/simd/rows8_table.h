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

// So many activation rows are multiplied without panels, which are cheap to make of interleaved
// rows.
inline constexpr int kFewInterleavedRows = 2;

template <typename Few, typename Many>
void RunRows8(const ProductTile& tile) {
  if (tile.row_count <= kFewInterleavedRows) {
    Few::RunFew(tile);
  } else {
    Many::RunMany(tile);
  }
}

// `Few` and `Many` are the vectors for few and for many activation rows. Few rows are limited by
// memory, of which vectors of eight lanes get all: they read one stream. Sixteen lanes read two
// groups of rows at once, and got .7 to .95 of what rows as in the file do (docs/performance.md,
// "Layouts").
template <typename Few, typename Many>
void FillRows8Kernels(Kernels* k) {
  const auto set = [k](TensorType type, ProductFn product) {
    k->rows8[static_cast<size_t>(type)] = product;
  };
  const auto set_lanes = [set]<typename Format>(TensorType type, Format) {
    set(type, &RunRows8<LaneProduct<Few, Format, InterleavedRows<Few>>,
                        LaneProduct<Many, Format, InterleavedRows<Many>>>);
  };
  const auto set_256 = [set]<typename Format>(TensorType type, Format) {
    set(type, &RunRows8<Rows8Product<Few, Format>, Rows8Product<Many, Format>>);
  };
  using enum TensorType;
  set_lanes(kQ4_0, LaneQ40());
  set_lanes(kQ4_1, LaneQ41());
  set_lanes(kIQ4_NL, LaneIQ4NL());
  set_lanes(kMXFP4, LaneMXFP4());
  set_lanes(kNVFP4, LaneNVFP4());
  set_lanes(kQ2_0, LaneQ20());
  set_256(kQ2_K, Rows8Q2K());
  set_256(kQ3_K, Rows8Q3K());
  set_256(kQ4_K, Rows8Q4K());
  set_256(kQ5_K, Rows8Q5K());
  set_256(kIQ4_XS, Rows8IQ4XS());
}

}  // namespace
}  // namespace strata::compute
