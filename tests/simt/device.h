// The third implementation of the names of services/compute/gpu/device.h, beside CUDA and HIP; that
// header includes this one when STRATA_SIMT_WARP (32 or 64) is defined and documents the names.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "common/quant/float16.h"
#include "tests/simt/executor.h"
#include "tests/simt/source_place.h"

#define STRATA_KERNEL
#define STRATA_DEVICE inline

namespace strata::compute::gpu {

// The one device of the process; tests set its schedule.
inline simt::Executor& SimtDevice() {
  static simt::Executor device(STRATA_SIMT_WARP);
  return device;
}

inline int ThreadIndex() { return static_cast<int>(simt::Executor::Running().thread()); }
inline int BlockThreads() { return static_cast<int>(simt::Executor::Running().block_threads()); }
inline int64_t BlockX() { return simt::Executor::Running().block_x(); }
inline int64_t BlockY() { return simt::Executor::Running().block_y(); }

inline void SyncBlock(simt::SourcePlace where = simt::SourcePlace::Current()) {
  simt::Executor::Running().SyncBlock(where);
}

inline std::byte* SharedMemory() { return simt::Executor::Running().shared(); }

inline float HalfToFloat(uint16_t bits) { return quant::HalfToFloat(bits); }
inline uint32_t FloatBits(float value) { return std::bit_cast<uint32_t>(value); }
inline float FloatFromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

// The value of lane `lane` of this thread's group.
template <typename T>
T Shuffle(T value, int lane, simt::SourcePlace where = simt::SourcePlace::Current()) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const unsigned group_start = ThreadIndex() % STRATA_SIMT_WARP / kGroup * kGroup;
  const uint64_t other = simt::Executor::Running().Exchange(bits, where)[group_start + lane];
  T result;
  std::memcpy(&result, &other, sizeof(T));
  return result;
}

template <typename T>
T ShuffleXor(T value, int mask, simt::SourcePlace where = simt::SourcePlace::Current()) {
  return Shuffle(value, (ThreadIndex() % kGroup) ^ mask, where);
}

inline uint32_t GroupBallot(bool predicate,
                            simt::SourcePlace where = simt::SourcePlace::Current()) {
  const auto& all = simt::Executor::Running().Exchange(predicate ? 1 : 0, where);
  const unsigned group_start = ThreadIndex() % STRATA_SIMT_WARP / kGroup * kGroup;
  uint32_t bits = 0;
  for (unsigned lane = 0; lane < kGroup; ++lane) {
    bits |= static_cast<uint32_t>(all[group_start + lane]) << lane;
  }
  return bits;
}

// Runs the kernel to its end. The result is valid until the next launch.
template <typename... Params>
const char* LaunchKernel(void (*kernel)(Params...), const LaunchShape& shape, Stream /*stream*/,
                         std::type_identity_t<Params>... args) {
  static std::string error;
  error = SimtDevice().Run({shape.blocks_x, shape.blocks_y, shape.threads, shape.shared_bytes},
                           [&] { kernel(args...); });
  return error.empty() ? nullptr : error.c_str();
}

}  // namespace strata::compute::gpu
