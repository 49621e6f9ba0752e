// The back ends a test runs on: every instruction set of this processor, several thread counts.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "services/compute/cpu/cpu_backend.h"

namespace strata::compute::testing {

inline std::unique_ptr<Backend> MakeBackend(const std::string& isa, int threads) {
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      CreateCpuBackend({.threads = threads, .spin_us = 50, .isa = isa});
  return backend.ok() ? *std::move(backend) : nullptr;
}

inline std::vector<std::string> AvailableIsas() {
  std::vector<std::string> isas;
  for (const char* isa : {"scalar", "avx2", "avx512", "avx512vbmi"}) {
    if (MakeBackend(isa, 1) != nullptr) isas.emplace_back(isa);
  }
  return isas;
}

// For INSTANTIATE_TEST_SUITE_P over AvailableIsas().
inline std::string IsaName(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace strata::compute::testing
