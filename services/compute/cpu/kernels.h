// The inner loops of the CPU back end as a table of functions, one table per instruction set.
//
// A kernel works on plain host pointers, on one thread, and allocates nothing. Which thread
// computes which part is decided by the callers (cpu_products.cc and its neighbours). Every kernel
// obeys the contract of ops/backend.h: the bits of one (row, output) pair do not depend on what
// else is in the call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "common/quant/tensor_type.h"

namespace strata::compute {

// How a product wants its activation rows.
enum class ActivationForm : uint8_t {
  kF32,      // as they are
  kInt8x32,  // blocks of 32: see activations.h
  kInt8x256,
  kInt8x32Quads,  // kInt8x32 with every 16 values in the order 0 4 8 12 1 5 9 13 2 6 ...
};
inline constexpr int kActivationForms = 4;

// One tile of a product: out[r * out_stride + o] = sum_i W[o][i] * x[r][i].
struct ProductTile {
  TensorType type;
  const std::byte* weights;  // first of `outputs` rows
  size_t weight_row_bytes;
  int outputs;
  int64_t inputs;
  const std::byte* const* rows;  // row_count activation rows in the form of the type
  int row_count;
  // Each row of `out` has room for `outputs` rounded up to kOutputsPadding; what is written past
  // `outputs` means nothing.
  float* out;
  int64_t out_stride;
  std::byte* scratch;  // at least scratch_bytes(inputs), aligned to 64 bytes
};
inline constexpr int kOutputsPadding = 32;
inline constexpr int kMostTileRows = 128;  // of row_count
using ProductFn = void (*)(const ProductTile& tile);

inline constexpr int kTypeIds = 64;  // more than the largest TensorType

// Softmax attention of a few query rows of one sequence over one K/V head.
struct AttentionTile {
  int head_dim;
  int group;  // query heads per K/V head
  float scale;
  int window;  // 0 = none
  // Query row i stands at position[i] and reads its heads at q[i] (group * head_dim values); the
  // result goes to out[i] in the same shape.
  int rows;
  const int32_t* position;
  const float* const* q;
  float* const* out;
  // The cache: value of token p is at page_table[p / page_tokens], slot p % page_tokens.
  TensorType kv_type;  // F32, F16, BF16 or Q8_0 (then head_dim is a multiple of 32)
  size_t head_bytes;   // of head_dim values of that type
  const std::byte* k;  // of this K/V head in pool row 0
  const std::byte* v;
  size_t k_row_bytes;
  size_t v_row_bytes;
  const int32_t* page_table;
  int page_tokens;
  std::byte* scratch;  // attention_scratch(head_dim, rows * group), aligned to 64 bytes
};

struct Kernels {
  std::string_view name;

  std::array<ProductFn, kTypeIds> product;    // by TensorType; every type has one
  std::array<ActivationForm, kTypeIds> form;  // by TensorType
  // The same for weights in the layout kRows8 (common/quant/weight_layout.h), with the same bits as
  // result and the same form of activations; null: there is none that
  // gains. Outputs are a multiple of eight.
  std::array<ProductFn, kTypeIds> rows8;
  size_t (*product_scratch)(int64_t inputs);
  // x[n] to activation forms; n is a multiple of the form's block.
  void (*quantize32)(const float* x, int64_t n, std::byte* row);
  void (*quantize32_quads)(const float* x, int64_t n, std::byte* row);
  void (*quantize256)(const float* x, int64_t n, std::byte* row);

  // y += x; out = x / sqrt(mean(x^2) + eps) * weight (nullptr: all ones); out = silu(gate) * up.
  void (*add)(const float* x, float* y, int64_t n);
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* out);
  // y += sum_j weights[j] * (rows + j * stride), j ascending; the sum is formed first.
  void (*combine)(const float* rows, int64_t stride, const float* weights, int count, int64_t n,
                  float* y);
  void (*to_half)(const float* x, int64_t n, uint16_t* out);

  void (*attention)(const AttentionTile& tile);
  size_t (*attention_scratch)(int head_dim, int queries);
};

// Portable code; the reference. Weights of quantised types are decoded to floats.
const Kernels& ScalarKernels();

// Kernels for processors with more: those of the architecture that this is compiled for exist. Only
// to be called if the entry of KernelChoices says that they are available.
const Kernels& Avx2Kernels();
const Kernels& AvxVnniKernels();
const Kernels& Avx512Kernels();
const Kernels& VbmiKernels();
const Kernels& NeonKernels();

struct KernelChoice {
  std::string_view name;
  bool (*available)();  // whether this processor can run them
  const Kernels& (*kernels)();
};
// What this architecture has, best first; the last one is always available.
std::span<const KernelChoice> KernelChoices();

}  // namespace strata::compute
