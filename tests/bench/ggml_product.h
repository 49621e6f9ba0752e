// llama.cpp's matrix product through ggml's graph interface, with the CPU library that llama.cpp
// itself picks for this processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "services/compute/kernel_bench/product_case.h"
#include "tests/oracle/llama_library.h"

namespace strata::bench {

// The products of one pass of a ProductShape, computed one after the other by one graph.
class GgmlProduct {
 public:
  // `weight` is one matrix; each of the shape's matrices gets its own memory. Null if llama.cpp has
  // no kernel, or no repacked form (`repack`), for this type.
  static std::unique_ptr<GgmlProduct> Create(const oracle::LlamaLibrary& llama,
                                             const compute::ProductShape& shape,
                                             std::span<const std::byte> weight,
                                             std::span<const float> x, int threads, bool repack);
  virtual ~GgmlProduct() = default;
  virtual void Run() = 0;
};

}  // namespace strata::bench
