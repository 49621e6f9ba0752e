// The back ends a test runs on: every instruction set of this processor, several thread counts.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "services/compute/cpu/cpu_backend.h"
#include "services/compute/cpu/kernels.h"

namespace strata::compute::testing {

inline std::unique_ptr<Backend> MakeBackend(const std::string& isa, int threads) {
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      CreateCpuBackend({.threads = threads, .spin_us = 50, .isa = isa});
  return backend.ok() ? *std::move(backend) : nullptr;
}

inline std::vector<std::string> AvailableIsas() {
  std::vector<std::string> isas;
  for (const KernelChoice& choice : KernelChoices()) {
    if (choice.available()) isas.emplace_back(choice.name);
  }
  return isas;
}

// For INSTANTIATE_TEST_SUITE_P over AvailableIsas().
inline std::string IsaName(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace strata::compute::testing
