// Built with a GPU back end only: the kernels link into a program, and a machine without a device
// gets a reason instead of a crash. Their results are checked in tests/simt.
#include "services/compute/gpu/launch.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace strata::compute::gpu {
namespace {

TEST(LaunchTest, GivesAReasonWithoutADevice) {
  std::vector<float> values(64, 1.0F);
  const Tensor row = {TensorType::kF32, 1, 64, 64 * sizeof(float),
                      reinterpret_cast<std::byte*>(values.data())};
  const char* reason = RmsNorm(row, row, 1e-5F, row, nullptr);
  if (reason == nullptr) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_NE(std::string(reason), "");
  EXPECT_EQ(values, std::vector<float>(64, 1.0F));
}

}  // namespace
}  // namespace strata::compute::gpu
