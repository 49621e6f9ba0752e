// What kernels may use of a GPU, under the same names for CUDA, for HIP and for the CPU
// (tests/simt).
//
// A kernel runs in blocks of threads. The threads of a block share `SharedMemory()` and can wait
// for each other; groups of kGroup consecutive threads (lanes 0 to 31) can also exchange registers.
// A hardware warp has 32 or, on data-centre AMD GPUs, 64 threads; everything here works within
// groups of 32, so results do not depend on the warp.
//
// Rules that hold on all three: every thread of a block reaches every SyncBlock, every thread of a
// warp reaches every ShuffleXor, Shuffle and GroupBallot (return early only as a whole block), and
// a block has a multiple of 64 threads.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace strata::compute::gpu {

inline constexpr int kGroup = 32;

// A queue of the device's runtime (cudaStream_t, hipStream_t); null is the default one.
using Stream = void*;

struct LaunchShape {
  unsigned blocks_x = 1;
  unsigned blocks_y = 1;
  unsigned threads = 64;  // per block
  size_t shared_bytes = 0;
};

}  // namespace strata::compute::gpu

#if defined(__CUDACC__) || defined(__HIP__)
#if defined(__CUDACC__)
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#endif

// In front of a kernel, and of a function called by kernels. Both are language extensions, which a
// function cannot stand for.
#define STRATA_KERNEL __global__
#define STRATA_DEVICE __device__ __forceinline__

namespace strata::compute::gpu {

STRATA_DEVICE int ThreadIndex() { return static_cast<int>(threadIdx.x); }
STRATA_DEVICE int BlockThreads() { return static_cast<int>(blockDim.x); }
STRATA_DEVICE int64_t BlockX() { return blockIdx.x; }
STRATA_DEVICE int64_t BlockY() { return blockIdx.y; }

STRATA_DEVICE void SyncBlock() { __syncthreads(); }

// LaunchShape::shared_bytes of memory, aligned to 16, with undefined content at first.
STRATA_DEVICE std::byte* SharedMemory() {
  extern __shared__ __align__(16) std::byte strata_shared_memory[];
  return strata_shared_memory;
}

STRATA_DEVICE float HalfToFloat(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
STRATA_DEVICE uint32_t FloatBits(float value) { return __float_as_uint(value); }
STRATA_DEVICE float FloatFromBits(uint32_t bits) { return __uint_as_float(bits); }

#if defined(__CUDACC__)
inline constexpr unsigned kAllLanes = 0xffffffff;
// The value of the lane whose index differs in the bits of `mask` (< kGroup).
template <typename T>
STRATA_DEVICE T ShuffleXor(T value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask, kGroup);
}
// The value of lane `lane` (< kGroup) of the group.
template <typename T>
STRATA_DEVICE T Shuffle(T value, int lane) {
  return __shfl_sync(kAllLanes, value, lane, kGroup);
}
// Bit i: the predicate of lane i of the group.
STRATA_DEVICE uint32_t GroupBallot(bool predicate) { return __ballot_sync(kAllLanes, predicate); }
#else
template <typename T>
STRATA_DEVICE T ShuffleXor(T value, int mask) {
  return __shfl_xor(value, mask, kGroup);
}
template <typename T>
STRATA_DEVICE T Shuffle(T value, int lane) {
  return __shfl(value, lane, kGroup);
}
STRATA_DEVICE uint32_t GroupBallot(bool predicate) {
  // A bit for each lane of the warp. On a warp of 64, the upper group's bits are the upper half.
  const uint64_t all = __ballot(predicate);
  return static_cast<uint32_t>(all >> (ThreadIndex() & (warpSize - 1) & kGroup));
}
#endif

// Queues the kernel; returns null, or the runtime's description of why it was refused.
template <typename... Params>
const char* LaunchKernel(void (*kernel)(Params...), const LaunchShape& shape, Stream stream,
                         std::type_identity_t<Params>... args) {
  const dim3 blocks(shape.blocks_x, shape.blocks_y);
#if defined(__CUDACC__)
  kernel<<<blocks, shape.threads, shape.shared_bytes, static_cast<cudaStream_t>(stream)>>>(args...);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
#else
  kernel<<<blocks, shape.threads, shape.shared_bytes, static_cast<hipStream_t>(stream)>>>(args...);
  const hipError_t error = hipGetLastError();
  return error == hipSuccess ? nullptr : hipGetErrorString(error);
#endif
}

}  // namespace strata::compute::gpu

#elif defined(STRATA_SIMT_WARP)
#include "tests/simt/device.h"
#else
#error \
    "compile kernels with nvcc, with clang -x hip, or for the CPU with -DSTRATA_SIMT_WARP=32 or 64"
#endif

namespace strata::compute::gpu {

STRATA_DEVICE int LaneIndex() { return ThreadIndex() % kGroup; }
STRATA_DEVICE int GroupIndex() { return ThreadIndex() / kGroup; }

}  // namespace strata::compute::gpu
