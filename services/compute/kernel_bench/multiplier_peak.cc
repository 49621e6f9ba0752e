#include "services/compute/kernel_bench/multiplier_peak.h"

#include <algorithm>
#include <chrono>

#include "services/compute/cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace strata::compute {
namespace {

#if defined(__x86_64__)

constexpr int kSums = 8;
constexpr int kRounds = 100'000;
constexpr int kPasses = 20;

// Each runs kRounds * kSums dot instructions. The empty statements make a sum a value that the
// compiler knows nothing about.
__attribute__((target("avx512f,avx512vnni"))) void Dots512() {
  const __m512i codes = _mm512_set1_epi8(3);
  __m512i sum[kSums] = {};
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < kSums; ++i) {
      sum[i] = _mm512_dpbusd_epi32(sum[i], codes, codes);
      asm volatile("" : "+v"(sum[i]));
    }
  }
}

// Sums of pairs, eight of which are widened together: four-bit codes allow that.
__attribute__((target("avx2"))) void Dots256() {
  const __m256i codes = _mm256_set1_epi8(3);
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sum[kSums] = {};
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < kSums; ++i) {
      sum[i] = _mm256_maddubs_epi16(codes, sum[i]);
      asm volatile("" : "+x"(sum[i]));
      if (i < kSums - 1) continue;
      __m256i wide = _mm256_madd_epi16(sum[i], ones);
      asm volatile("" : "+x"(wide));
    }
  }
}

// Products a second if `dots` forms `products` with every instruction.
double Rate(void (*dots)(), double products) {
  double best = 1e30;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    dots();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
  }
  return products * kSums * kRounds / best;
}

#endif

}  // namespace

double MultiplierPeak(std::string_view isa) {
  for (const KernelChoice& choice : KernelChoices()) {
    if ((isa != "auto" && isa != choice.name) || !choice.available()) continue;
#if defined(__x86_64__)
    if (choice.name.substr(0, 6) == "avx512") return Rate(&Dots512, 64);
    if (choice.name == "avx2") return Rate(&Dots256, 32);
#endif
    break;
  }
  return 0;
}

}  // namespace strata::compute
