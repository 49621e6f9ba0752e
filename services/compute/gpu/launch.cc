// Compiled by nvcc, by clang for HIP, and by the host compiler for tests/simt.
#include "services/compute/gpu/launch.h"

#include "services/compute/gpu/device.h"
#include "services/compute/gpu/mat_vec.h"
#include "services/compute/gpu/rms_norm.h"
#include "services/compute/gpu/router.h"

namespace strata::compute::gpu {
namespace {

constexpr int64_t kMaxBlocksX = 0x7fffffff;
constexpr int64_t kMaxBlocksY = 65535;
constexpr size_t kMaxShared = 48 * 1024;  // what every device grants without asking

float* Floats(const Tensor& tensor) { return reinterpret_cast<float*>(tensor.data); }

int64_t StrideInFloats(const Tensor& tensor) {
  return static_cast<int64_t>(tensor.row_bytes / sizeof(float));
}

unsigned Blocks(int64_t items, unsigned per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace

const char* RmsNorm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out,
                    Stream stream) {
  if (x.rows == 0) return nullptr;
  if (x.rows > kMaxBlocksX) return "too many rows for one call";
  const RmsNormParams params = {Floats(x),         Floats(weight),      Floats(out), x.cols,
                                StrideInFloats(x), StrideInFloats(out), eps};
  const LaunchShape shape = {static_cast<unsigned>(x.rows), 1, kRmsNormThreads, kRmsNormShared};
  return LaunchKernel(RmsNormKernel<RmsNormParams>, shape, stream, params);
}

bool HasMatVec(TensorType type) { return type == TensorType::kQ8_0 || type == TensorType::kQ4_K; }

const char* MatVec(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& out,
                   bool accumulate, Stream stream) {
  if (x.rows == 0) return nullptr;
  if (x.rows > kMaxBlocksY) return "too many tokens for one call";
  MatVecParams params = {};
  params.weights = weight.data;
  params.weight_stride = static_cast<int64_t>(weight.row_bytes);
  params.inputs = weight.cols;
  params.outputs = weight.rows;
  params.x = Floats(x);
  params.x_stride = StrideInFloats(x);
  params.bias = bias.empty() ? nullptr : Floats(bias);
  params.out = Floats(out);
  params.out_stride = StrideInFloats(out);
  params.accumulate = accumulate;
  const LaunchShape shape = {Blocks(weight.rows, kMatVecOutputs), static_cast<unsigned>(x.rows),
                             kMatVecThreads, 0};
  if (weight.type == TensorType::kQ8_0) {
    return LaunchKernel(MatVecKernel<DotQ8_0>, shape, stream, params);
  }
  if (weight.type == TensorType::kQ4_K) {
    return LaunchKernel(MatVecKernel<DotQ4_K>, shape, stream, params);
  }
  return "no matrix-vector kernel for this tensor type";
}

const char* Route(const Tensor& logits, int k, bool normalize, const Tensor& ids,
                  const Tensor& weights, Stream stream) {
  if (logits.rows == 0) return nullptr;
  const size_t shared = RouteSharedBytes(static_cast<int>(logits.cols));
  if (shared > kMaxShared) return "too many experts for the router kernel";
  if (logits.rows > kMaxBlocksX) return "too many tokens for one call";
  RouteParams params = {};
  params.logits = Floats(logits);
  params.logits_stride = StrideInFloats(logits);
  params.tokens = logits.rows;
  params.experts = static_cast<int>(logits.cols);
  params.k = k;
  params.normalize = normalize;
  params.ids = reinterpret_cast<int32_t*>(ids.data);
  params.ids_stride = static_cast<int64_t>(ids.row_bytes / sizeof(int32_t));
  params.weights = Floats(weights);
  params.weights_stride = StrideInFloats(weights);
  const LaunchShape shape = {Blocks(logits.rows, kRouteTokens), 1, kRouteThreads, shared};
  return LaunchKernel(RouteKernel<RouteParams>, shape, stream, params);
}

}  // namespace strata::compute::gpu
