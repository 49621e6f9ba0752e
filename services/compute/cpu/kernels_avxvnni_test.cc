// The AVX-VNNI kernels on processors that have the same instructions in AVX-512's encoding only:
// this file is compiled for those. Where AVX-VNNI itself is there, kernels_test.cc runs the real
// ones.
#include "services/compute/cpu/kernels_check.h"
#include "services/compute/cpu/simd/int8_avxvnni.h"
#include "services/compute/cpu/simd/int8_table.h"
#include "services/compute/cpu/simd/rows8_table.h"
#include "services/compute/cpu/simd/vec_avx2.h"

namespace strata::compute {
namespace {

TEST(AvxVnniKernels, Products) {
  for (const KernelChoice& choice : KernelChoices()) {
    if (choice.name != "avx512") continue;
    if (!choice.available()) GTEST_SKIP() << "this processor has no AVX-512 VNNI";
  }
  Kernels k = ScalarKernels();
  FillInt8Kernels<Int8AvxVnni, VecAvx2>(&k);
  FillRows8Kernels<Int8AvxVnni, Int8AvxVnni>(&k);
  testing::CheckProducts(k);
  testing::CheckRows8(k);
  testing::CheckQuantisation(k);
}

}  // namespace
}  // namespace strata::compute
