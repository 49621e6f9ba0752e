// The vector instructions that the integer products are written in: those of x86 processors with
// AVX2. Elsewhere SIMDe (docs/dependencies.md) translates them to what the processor has, so that a
// format of weights is written once.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#else
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
#endif
