// The interface between models and devices.
//
// Conventions
//  * Activations are F32 tensors of shape [tokens, width], one token a row. Weights are [out, in]
//  in
//    any GGUF type: y[t][o] = sum_i W[o][i] * x[t][i].
//  * Row independence: the result for one token does not depend, in a single bit, on the other rows
//    of the call. Batching and chunking therefore never change an answer.
//  * Operations are issued in order and take effect in order. Only CopyToHost waits for the device.
//  * Shapes are the caller's duty and checked by assertions in debug builds; a model validates the
//    file's shapes once at load, so no operation can fail at run time.
//  * A back end is used by one thread at a time (the step loop); it may use many threads inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "services/compute/ops/tensor.h"

#include "absl/status/statusor.h"

namespace strata::compute {

// Owner of device memory.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() = 0;
  virtual size_t size() const = 0;
};

// Pairing of rotated dimensions: kInterleaved rotates (2i, 2i+1) (Llama's GGUF order), kHalves
// rotates (i, i + rotary/2) ("NEOX": Qwen).
enum class RopeStyle { kInterleaved, kHalves };

// The paged K/V cache of one layer. A page holds `page_tokens` consecutive tokens of one sequence;
// page p, slot s, head h starts at value ((p * page_tokens + s) * kv_heads + h) * head_dim of both
// pools. Pools are F16, F32, BF16 or, if head_dim is a multiple of 32, Q8_0 tensors of shape [pages
// * page_tokens, kv_heads * head_dim].
struct KvPool {
  Tensor k;
  Tensor v;
  int page_tokens = 0;
  int kv_heads = 0;
  int head_dim = 0;
};

// Which cached tokens each row of a step attends to: row r belongs to sequence `sequence[r]` at
// `position[r]` and sees that sequence's tokens 0..position[r] (or the last `window` of them). Page
// tables list a sequence's pages in token order. Spans live as long as the call.
struct AttentionRows {
  std::span<const int32_t> sequence;  // [rows], index into page_tables
  std::span<const int32_t> position;  // [rows]
  std::span<const std::span<const int32_t>> page_tables;
};

// The weights of one expert (or of a dense feed-forward block).
struct FfnWeights {
  Tensor gate;  // [ff, hidden]
  Tensor up;    // [ff, hidden]
  Tensor down;  // [hidden, ff]
};

// One expert and the (token, output row) pairs that were routed to it.
struct ExpertTask {
  FfnWeights weights;
  std::span<const int32_t> tokens;   // rows of x
  std::span<const int32_t> outputs;  // rows of out, same length
};

class Backend {
 public:
  virtual ~Backend() = default;

  // For the log and the status: "cpu avx2, 2 threads".
  virtual std::string_view description() const = 0;

  // --- memory -------------------------------------------------------------------------------
  // Zero-filled device memory; `what` names its purpose in the error.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes, std::string_view what) = 0;
  // Makes a weight usable by operations. `bytes` is host memory that must outlive the back end: it
  // may be copied or used in place.
  virtual absl::StatusOr<Tensor> LoadWeight(std::span<const std::byte> bytes, TensorType type,
                                            int64_t rows, int64_t cols) = 0;
  virtual void CopyToDevice(std::byte* device, std::span<const std::byte> host) = 0;
  virtual void CopyToHost(std::span<std::byte> host, const std::byte* device) = 0;

  // --- rows -----------------------------------------------------------------------------------
  // out[t] = decoded row ids[t] of table.
  virtual void EmbedRows(const Tensor& table, std::span<const int32_t> ids, const Tensor& out) = 0;
  // out[t] = x[rows[t]].
  virtual void GatherRows(const Tensor& x, std::span<const int32_t> rows, const Tensor& out) = 0;
  // y += x.
  virtual void Add(const Tensor& x, const Tensor& y) = 0;
  // out[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight. In place is allowed.
  virtual void RmsNorm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out) = 0;
  // out = silu(gate) * up; may be in place in gate.
  virtual void SwiGlu(const Tensor& gate, const Tensor& up, const Tensor& out) = 0;

  // --- products -------------------------------------------------------------------------------
  // outs[i] = x * weights[i]^T + biases[i]; all weights have x.cols inputs. The activation rows are
  // quantised once for all of them. `biases` is empty or has one (possibly empty) F32 tensor [1,
  // out] for each weight. With `accumulate`, the product is added to outs instead of replacing
  // them.
  virtual void MatMul(const Tensor& x, std::span<const Tensor> weights,
                      std::span<const Tensor> biases, std::span<const Tensor> outs,
                      bool accumulate) = 0;

  // --- attention ------------------------------------------------------------------------------
  // cos_sin[t] = {m cos(p_t f_i), m sin(p_t f_i)} interleaved for i < inv_freq.cols; shape
  // [tokens, 2 * inv_freq.cols]. Angles are computed in double: positions reach a million.
  virtual void RopeTable(std::span<const int32_t> positions, const Tensor& inv_freq,
                         float magnitude, const Tensor& cos_sin) = 0;
  // Per head of x [tokens, heads * head_dim], in place: optional RMS norm with weight [1, head_dim]
  // (empty = none), then rotation of the first cos_sin.cols dimensions.
  virtual void NormRope(const Tensor& x, int head_dim, const Tensor& norm_weight, float eps,
                        const Tensor& cos_sin, RopeStyle style) = 0;
  // Row t of k and v goes to pool row slots[t] (= page * page_tokens + slot).
  virtual void StoreKv(const Tensor& k, const Tensor& v, std::span<const int32_t> slots,
                       const KvPool& pool) = 0;
  // Turns the keys of the given pool rows on by one rotation: the first cos_sin.cols dimensions of
  // every head by the angles of cos_sin, a single row. Arithmetic in F32, rounded once to the
  // pool's type, F16 or F32. A row may be listed only once.
  virtual void RotateKeys(const KvPool& pool, std::span<const int32_t> slots, const Tensor& cos_sin,
                          RopeStyle style) = 0;
  // out[t] = softmax(scale * q[t] K^T) V per query head; query head h reads K/V head
  // h / (heads / kv_heads). window = 0: no limit. q and out: [tokens, heads * head_dim].
  virtual void Attention(const Tensor& q, const AttentionRows& rows, const KvPool& pool,
                         float scale, int window, const Tensor& out) = 0;

  // --- mixture of experts ---------------------------------------------------------------------
  // The k largest of softmax(logits[t]) in descending order (ties: lower index first): ids I32
  // [tokens, k], weights F32 [tokens, k]. `normalize` divides the weights by their sum.
  virtual void Route(const Tensor& logits, int k, bool normalize, const Tensor& ids,
                     const Tensor& weights) = 0;
  // out[outputs[i]] = down * (silu(gate * x[tokens[i]]) * (up * x[tokens[i]])) for every task.
  virtual void ExpertFfn(const Tensor& x, std::span<const ExpertTask> tasks, const Tensor& out) = 0;
  // y[t] += sum_j weights[t][j] * expert_out[t * k + j], j ascending: the order, and so the
  // rounding, does not depend on which expert arrived first.
  virtual void CombineExperts(const Tensor& expert_out, const Tensor& weights, const Tensor& y) = 0;
};

}  // namespace strata::compute
