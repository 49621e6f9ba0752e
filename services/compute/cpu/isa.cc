// What this processor can run; compiled for the base architecture.
#include <array>

#include "services/compute/cpu/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace strata::compute {
namespace {

bool Always() { return true; }

#if defined(__x86_64__)

// F16C needs no question of its own (which clang 14 cannot ask): every processor with AVX2 has it.
bool HasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

// Leaf 7, part 1, bit 4 of EAX: a question that clang 14 cannot ask.
bool HasAvxVnni() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return HasAvx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
}

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

bool HasVbmi() { return HasAvx512() && __builtin_cpu_supports("avx512vbmi"); }

constexpr std::array kChoices = {
    KernelChoice{"avx512vbmi", &HasVbmi, &VbmiKernels},
    KernelChoice{"avx512", &HasAvx512, &Avx512Kernels},
    KernelChoice{"avxvnni", &HasAvxVnni, &AvxVnniKernels},
    KernelChoice{"avx2", &HasAvx2, &Avx2Kernels},
    KernelChoice{"scalar", &Always, &ScalarKernels},
};

#elif defined(__aarch64__)

bool HasDotProduct() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }

constexpr std::array kChoices = {
    KernelChoice{"neon", &HasDotProduct, &NeonKernels},
    KernelChoice{"scalar", &Always, &ScalarKernels},
};

#else

constexpr std::array kChoices = {KernelChoice{"scalar", &Always, &ScalarKernels}};

#endif

}  // namespace

std::span<const KernelChoice> KernelChoices() { return kChoices; }

}  // namespace strata::compute
