// Calls of the GPU kernels with the operands of ops/backend.h: what the GPU back end is made of
// beside memory and copies. This header needs no GPU compiler.
//
// All tensors are in device memory; the work is queued on the stream and the call returns at once.
// A result of null means queued; otherwise it is a reason for people, with static storage.
#pragma once

#include "services/compute/ops/tensor.h"

namespace strata::compute::gpu {

// A queue of the device's runtime (cudaStream_t, hipStream_t); null is the default one.
using Stream = void*;

// out[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight. F32; in place is allowed.
const char* RmsNorm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out,
                    Stream stream);

// Whether MatVec takes weights of this type.
bool HasMatVec(TensorType type);

// out[t] = x[t] * weight^T + bias; with `accumulate` it is added to out. x, bias and out are F32,
// bias may be empty. Meant for few tokens: the weights are read once for each. Weight memory and
// row distance are multiples of the alignment that the type's block size allows (2 bytes for Q8_0,
// 16 for Q4_K), which tensors of GGUF files are.
const char* MatVec(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& out,
                   bool accumulate, Stream stream);

// The k largest of softmax(logits[t]) in descending order (ties: lower index first): ids I32
// [tokens, k], weights F32 [tokens, k]. `normalize` divides the weights by their sum.
const char* Route(const Tensor& logits, int k, bool normalize, const Tensor& ids,
                  const Tensor& weights, Stream stream);

}  // namespace strata::compute::gpu
