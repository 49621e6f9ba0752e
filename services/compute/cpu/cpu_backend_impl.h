// CpuBackend's class definition, shared by the files that implement its operations.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/compute/cpu/cpu_backend.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/scratch.h"
#include "services/compute/cpu/thread_pool.h"
#include "services/compute/cpu/weight_memory.h"
#include "services/compute/ops/backend.h"

namespace strata::compute {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Kernels& kernels, int threads, int spin_us, const cpu_set_t* mask);

  std::string_view description() const override { return description_; }

  // cpu_backend.cc
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes, std::string_view what) override;
  absl::StatusOr<Tensor> LoadWeight(std::span<const std::byte> bytes, TensorType type, int64_t rows,
                                    int64_t cols) override;
  void CopyToDevice(std::byte* device, std::span<const std::byte> host) override;
  void CopyToHost(std::span<std::byte> host, const std::byte* device) override;

  // cpu_rows.cc
  void EmbedRows(const Tensor& table, std::span<const int32_t> ids, const Tensor& out) override;
  void GatherRows(const Tensor& x, std::span<const int32_t> rows, const Tensor& out) override;
  void Add(const Tensor& x, const Tensor& y) override;
  void RmsNorm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out) override;
  void SwiGlu(const Tensor& gate, const Tensor& up, const Tensor& out) override;

  // cpu_products.cc
  void MatMul(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases,
              std::span<const Tensor> outs, bool accumulate) override;

  // cpu_attention.cc
  void RopeTable(std::span<const int32_t> positions, const Tensor& inv_freq, float magnitude,
                 const Tensor& cos_sin) override;
  void NormRope(const Tensor& x, int head_dim, const Tensor& norm_weight, float eps,
                const Tensor& cos_sin, RopeStyle style) override;
  void StoreKv(const Tensor& k, const Tensor& v, std::span<const int32_t> slots,
               const KvPool& pool) override;
  void RotateKeys(const KvPool& pool, std::span<const int32_t> slots, const Tensor& cos_sin,
                  RopeStyle style) override;
  void Attention(const Tensor& q, const AttentionRows& rows, const KvPool& pool, float scale,
                 int window, const Tensor& out) override;

  // cpu_experts.cc
  void Route(const Tensor& logits, int k, bool normalize, const Tensor& ids,
             const Tensor& weights) override;
  void ExpertFfn(const Tensor& x, std::span<const ExpertTask> tasks, const Tensor& out) override;
  void CombineExperts(const Tensor& expert_out, const Tensor& weights, const Tensor& y) override;

 private:
  // Rows [0, count) of an activation in every form that some weight of the call needs.
  struct Activations {
    const std::byte* data[kActivationForms];
    size_t row_bytes[kActivationForms];
    const std::byte* Row(ActivationForm form, int64_t row) const {
      return data[static_cast<int>(form)] + row * row_bytes[static_cast<int>(form)];
    }
  };

  ActivationForm FormOf(TensorType type) const { return kernels_.form[static_cast<size_t>(type)]; }
  // Quantises the rows of x for the forms in `needed` (bit = form); memory is from scratch_.
  Activations Prepare(const Tensor& x, unsigned needed);
  void RunProduct(const Tensor& weight, int64_t first_output, int outputs,
                  const std::byte* const* rows, int row_count, float* out, int64_t out_stride,
                  std::byte* scratch) const;
  // RunProduct of interleaved rows of a type without kernels for them.
  void RunApart(ProductTile tile) const;
  // Scratch memory of RunProduct, and where RunApart's own part of it begins.
  size_t ProductScratch(int64_t inputs) const;
  size_t ApartOffset(int64_t inputs) const;
  // Calls fn(begin, end, worker) for ranges that cover [0, rows); in one piece on the caller if the
  // work, about `row_cost` elements a row, does not pay for waking others.
  void ForRows(int64_t rows, int64_t row_cost,
               absl::FunctionRef<void(int64_t begin, int64_t end, int worker)> fn);
  // `bytes` of scratch memory for each worker.
  struct PerWorker {
    std::byte* base;
    size_t stride;
    std::byte* operator()(int worker) const { return base + worker * stride; }
  };
  PerWorker TakePerWorker(size_t bytes);

  const Kernels& kernels_;
  ThreadPool pool_;
  Scratch scratch_;
  WeightMemory weights_;
  std::string description_;
};

// Row `row` of an F32 tensor.
inline float* FloatRow(const Tensor& tensor, int64_t row) {
  return reinterpret_cast<float*>(tensor.data + row * tensor.row_bytes);
}

}  // namespace strata::compute
