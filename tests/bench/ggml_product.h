// llama.cpp's matrix product through ggml's graph interface, with the CPU library that llama.cpp
// itself picks for this processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/quant/tensor_type.h"
#include "tests/oracle/llama_library.h"

namespace strata::bench {

// `copies` products x * W_i^T of the same shape, computed one after the other by one graph.
class GgmlProduct {
 public:
  struct Shape {
    TensorType type;
    int64_t inputs;
    int64_t outputs;
    int64_t rows;
    int copies;
  };
  // `weights` is one W; each of the copies gets its own memory. Null if llama.cpp has no repacked
  // form for this type (`repack`).
  static std::unique_ptr<GgmlProduct> Create(const oracle::LlamaLibrary& llama, const Shape& shape,
                                             std::span<const std::byte> weights,
                                             std::span<const float> x, int threads, bool repack);
  virtual ~GgmlProduct() = default;
  virtual void Run() = 0;
};

}  // namespace strata::bench
