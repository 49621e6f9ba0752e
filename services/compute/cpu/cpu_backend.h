// The CPU back end: Backend (ops/backend.h) on host memory, with kernels chosen at run time.
#pragma once

#include <memory>
#include <string>

#include "services/compute/ops/backend.h"

#include "absl/status/statusor.h"

namespace strata::compute {

struct CpuOptions {
  // Threads that compute, the caller included; 0 = one for each physical core this process may use.
  int threads = 0;
  // How long an idle worker polls for the next operation before it sleeps.
  int spin_us = 2000;
  // "auto" takes the best the processor has; a name (kernels.h) insists.
  //   scalar  portable; quantised weights are decoded and multiplied by float activations
  //   avx2    x86-64 with AVX2, FMA and F16C; int8 activations for quantised weights
  //   avxvnni as avx2, with AVX-VNNI
  //   avx512  as avx2, with AVX-512 F/BW/DQ/VL and VNNI
  //   avx512vbmi  with VBMI besides: i-quants by lookups in registers
  std::string isa = "auto";
};

// Fails if a named instruction set is unknown or the processor lacks it. LoadWeight copies
// weights to huge pages while memory is plentiful (weight_memory.h); experts are used where they
// lie.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuOptions& options);

}  // namespace strata::compute
