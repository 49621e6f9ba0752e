// out[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight: a block for each row.
#pragma once

#include "services/compute/gpu/device.h"
#include "services/compute/gpu/reduce.h"

namespace strata::compute::gpu {

struct RmsNormParams {
  const float* x;
  const float* weight;
  float* out;  // may be x
  int64_t cols;
  int64_t x_stride;  // floats from row to row
  int64_t out_stride;
  float eps;
};

inline constexpr unsigned kRmsNormThreads = 256;
inline constexpr size_t kRmsNormShared = kRmsNormThreads / kGroup * sizeof(float);

// One instance only; a template because kernels in headers need one (`inline` is refused).
template <typename Params>
STRATA_KERNEL void RmsNormKernel(Params p) {
  const float* x = p.x + BlockX() * p.x_stride;
  float* out = p.out + BlockX() * p.out_stride;
  float squares = 0;
  for (int64_t i = ThreadIndex(); i < p.cols; i += BlockThreads()) squares += x[i] * x[i];
  squares = BlockSum(squares, reinterpret_cast<float*>(SharedMemory()));
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(p.cols) + p.eps);
  // Each thread writes the elements it alone has read: safe in place.
  for (int64_t i = ThreadIndex(); i < p.cols; i += BlockThreads()) {
    out[i] = x[i] * scale * p.weight[i];
  }
}

}  // namespace strata::compute::gpu
