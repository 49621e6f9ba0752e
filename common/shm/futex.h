// Sleeping on a word of shared memory (futex(2)), across processes.
#pragma once

#include <cstdint>

#include "common/shm/atomic.h"

namespace strata::shm {

// Sleeps while *word == expected, at most `timeout_ms`. Returns on a wake, a timeout, a signal or
// when the value already differs; the caller looks again in every case. The mapping may be
// read-only.
void FutexWait(const Atomic<uint32_t>& word, uint32_t expected, int timeout_ms);

// Wakes everyone who sleeps on the word.
void FutexWakeAll(const Atomic<uint32_t>& word);

// A hint to the processor that this is a spin loop.
inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace strata::shm
