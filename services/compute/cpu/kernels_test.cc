// Every table of kernels that this processor can run. Needs no back end: it is also what is
// compiled for ARM and run in an emulator.
#include "common/quant/weight_layout.h"
#include "services/compute/cpu/kernels_check.h"

namespace strata::compute {
namespace {

class KernelTable : public ::testing::TestWithParam<KernelChoice> {
 protected:
  void SetUp() override {
    if (!GetParam().available()) GTEST_SKIP() << "this processor cannot run them";
  }
  const Kernels& kernels() const { return GetParam().kernels(); }
};

TEST_P(KernelTable, Products) { testing::CheckProducts(kernels()); }
TEST_P(KernelTable, Rows8) { testing::CheckRows8(kernels()); }
TEST_P(KernelTable, TypesThatGainFromRows8AreThoseWithKernels) {
  for (const TensorTypeInfo& info : AllTensorTypes()) {
    if (GetParam().name == "scalar" || GetParam().name == "neon") continue;  // none
    EXPECT_EQ(kernels().rows8[static_cast<size_t>(info.type)] != nullptr,
              quant::GainsFromRows8(info.type))
        << info.name;
  }
}
TEST_P(KernelTable, Quantisation) {
  if (GetParam().name == "scalar") GTEST_SKIP() << "float activations";
  testing::CheckQuantisation(kernels());
}
TEST_P(KernelTable, FloatKernels) { testing::CheckFloatKernels(kernels()); }
TEST_P(KernelTable, Attention) { testing::CheckAttention(kernels()); }

INSTANTIATE_TEST_SUITE_P(Isa, KernelTable,
                         ::testing::ValuesIn(KernelChoices().begin(), KernelChoices().end()),
                         [](const auto& choice) { return std::string(choice.param.name); });

}  // namespace
}  // namespace strata::compute
