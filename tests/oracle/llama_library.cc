#include "tests/oracle/llama_library.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace strata::oracle {
namespace {

[[noreturn]] void Stop(const char* what, const char* detail) {
  std::fprintf(stderr, "llama.cpp oracle: %s: %s\n", what, detail);
  std::abort();
}

}  // namespace

struct LlamaLibrary::Opened {
  LlamaLibrary library;
  std::string why_missing;
};

std::string LlamaLibrary::OpenAll(const char* folder) {
  if (folder == nullptr || *folder == '\0') {
    return "STRATA_LLAMA_LIB_DIR is not set; it names the folder of llama.cpp's libraries "
           "(deploy/test installs them)";
  }
  folder_ = folder;
  for (const char* name : {"libggml-base.so", "libggml.v0.5.0.so", "libllama.v0.5.0.so"}) {
    void* handle = dlopen((folder_ + "/" + name).c_str(), RTLD_LAZY | RTLD_GLOBAL);
    if (handle == nullptr) return std::string("cannot open llama.cpp's library: ") + dlerror();
    handles_.push_back(handle);
  }
  cpu_ = dlopen((folder_ + "/libggml-cpu-x64.so").c_str(), RTLD_LAZY);
  if (cpu_ == nullptr) return std::string("cannot open llama.cpp's library: ") + dlerror();
  void* init = dlsym(cpu_, "ggml_cpu_init");  // fills the tables that the kernels use
  if (init == nullptr) return "libggml-cpu-x64.so has no ggml_cpu_init";
  reinterpret_cast<void (*)()>(init)();
  return "";
}

const LlamaLibrary::Opened& LlamaLibrary::Open() {
  static const Opened* const opened = [] {
    auto* fresh = new Opened;  // lives as long as the process, as the libraries do
    fresh->why_missing = fresh->library.OpenAll(std::getenv("STRATA_LLAMA_LIB_DIR"));
    return fresh;
  }();
  return *opened;
}

const LlamaLibrary* LlamaLibrary::Get() {
  const Opened& opened = Open();
  return opened.why_missing.empty() ? &opened.library : nullptr;
}

const std::string& LlamaLibrary::WhyMissing() { return Open().why_missing; }

void* LlamaLibrary::Symbol(const char* name) const {
  for (void* handle : handles_) {
    if (void* symbol = dlsym(handle, name); symbol != nullptr) return symbol;
  }
  Stop("no such function", name);
}

const GgmlTypeTraits& LlamaLibrary::TypeTraits(uint32_t type) const {
  return *Function<const GgmlTypeTraits*(int)>("ggml_get_type_traits")(static_cast<int>(type));
}

const GgmlCpuTypeTraits& LlamaLibrary::CpuTypeTraits(uint32_t type) const {
  void* get = dlsym(cpu_, "ggml_get_type_traits_cpu");
  if (get == nullptr) Stop("no such function", "ggml_get_type_traits_cpu");
  return *reinterpret_cast<const GgmlCpuTypeTraits* (*)(int)>(get)(static_cast<int>(type));
}

std::vector<std::byte> LlamaLibrary::Quantize(uint32_t type, const float* x, int64_t n) const {
  const GgmlTypeTraits& traits = TypeTraits(type);
  std::vector<std::byte> out(n / traits.block_values * traits.block_bytes);
  const std::vector<float> ones(n, 1.0F);
  const bool weighted =
      Function<bool(int)>("ggml_quantize_requires_imatrix")(static_cast<int>(type));
  Function<size_t(int, const float*, void*, int64_t, int64_t, int64_t, const float*)>(
      "ggml_quantize_chunk")(static_cast<int>(type), x, out.data(), 0, 1, n,
                             weighted ? ones.data() : nullptr);
  return out;
}

}  // namespace strata::oracle
