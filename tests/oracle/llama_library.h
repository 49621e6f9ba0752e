// llama.cpp's shared libraries, opened at run time.
//
//   const LlamaLibrary* llama = LlamaLibrary::Get();
//   if (llama == nullptr) GTEST_SKIP() << LlamaLibrary::WhyMissing();
//   auto* name = llama->Function<const char*(int)>("ggml_type_name");
//
// Opened once per process and never closed (ggml starts threads and keeps global state).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace strata::oracle {

// Entry of ggml's table of tensor types, from libggml-base (layout of v0.5.0).
struct GgmlTypeTraits {
  const char* name;
  int64_t block_values;
  int64_t block_values_interleaved;
  size_t block_bytes;
  bool is_quantized;
  void (*to_float)(const void* blocks, float* out, int64_t n);  // null for f32, q8_1, q8_K, ints
  void (*from_float)(const float* x, void* blocks, int64_t n);  // reference quantiser, or null
};

// The same from a libggml-cpu-*, with the kernels of that processor.
struct GgmlCpuTypeTraits {
  void (*from_float)(const float* x, void* blocks, int64_t n);
  // *dot = sum over n of x[i] * y[i]; pass 0 for the strides and 1 for rows.
  void (*vec_dot)(int n, float* dot, size_t stride_dot, const void* x, size_t stride_x,
                  const void* y, size_t stride_y, int rows);
  int vec_dot_type;  // the type of y
  int64_t rows;
};

class LlamaLibrary {
 public:
  // Null when STRATA_LLAMA_LIB_DIR is unset or holds no usable libraries.
  static const LlamaLibrary* Get();
  // The reason for Get() == nullptr, with what to do about it.
  static const std::string& WhyMissing();

  // The folder, for ggml_backend_load_all_from_path.
  const std::string& folder() const { return folder_; }

  // Function of the given type in libllama, libggml or libggml-base. A name that is missing stops
  // the process: the version is pinned, so it is a mistake in the test.
  template <typename Signature>
  Signature* Function(const char* name) const {
    return reinterpret_cast<Signature*>(Symbol(name));
  }

  const GgmlTypeTraits& TypeTraits(uint32_t type) const;
  // Kernels of the plainest CPU library (libggml-cpu-x64.so), the same on every machine.
  const GgmlCpuTypeTraits& CpuTypeTraits(uint32_t type) const;

  // ggml_quantize_chunk of one row without importance matrix (all ones where one is required).
  // ggml aborts the process for a type it cannot quantise.
  std::vector<std::byte> Quantize(uint32_t type, const float* x, int64_t n) const;

 private:
  struct Opened;
  LlamaLibrary() = default;
  static const Opened& Open();
  std::string OpenAll(const char* folder);  // empty, or why it failed
  void* Symbol(const char* name) const;

  std::string folder_;
  std::vector<void*> handles_;
  void* cpu_ = nullptr;  // libggml-cpu-x64
};

}  // namespace strata::oracle
