// What this processor can run; compiled for the base architecture.
#include "services/compute/cpu/kernels.h"

namespace strata::compute {

#if defined(__x86_64__)

// F16C needs no question of its own (which clang 14 cannot ask): every processor with AVX2 has it.
bool CpuHasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool CpuHasAvx512() {
  return CpuHasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

bool CpuHasVbmi() { return CpuHasAvx512() && __builtin_cpu_supports("avx512vbmi"); }

#else

bool CpuHasAvx2() { return false; }
const Kernels& Avx2Kernels() { return ScalarKernels(); }
bool CpuHasAvx512() { return false; }
const Kernels& Avx512Kernels() { return ScalarKernels(); }
bool CpuHasVbmi() { return false; }
const Kernels& VbmiKernels() { return ScalarKernels(); }

#endif

}  // namespace strata::compute
