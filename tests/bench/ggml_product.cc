#include "tests/bench/ggml_product.h"

#include <cstring>
#include <string_view>
#include <vector>

namespace strata::bench {
namespace {

// Opaque objects of ggml; only their addresses are used.
struct Context;
struct TensorHandle;
struct Graph;
struct Device;
struct Engine;  // "backend" in ggml
struct BufferType;
struct BufferHandle;

struct InitParams {  // struct ggml_init_params
  size_t memory_size;
  void* memory;
  bool no_alloc;
};

constexpr int kCpuDevice = 0;  // GGML_BACKEND_DEVICE_TYPE_CPU

class Product final : public GgmlProduct {
 public:
  explicit Product(const oracle::LlamaLibrary& llama) : llama_(llama) {}
  ~Product() override {
    for (BufferHandle* buffer : buffers_) {
      llama_.Function<void(BufferHandle*)>("ggml_backend_buffer_free")(buffer);
    }
    for (Context* context : contexts_) llama_.Function<void(Context*)>("ggml_free")(context);
    if (engine_ != nullptr) llama_.Function<void(Engine*)>("ggml_backend_free")(engine_);
  }

  bool Build(const compute::ProductShape& shape, std::span<const std::byte> weight,
             std::span<const float> x, int threads, bool repack) {
    static const bool loaded = [this] {
      llama_.Function<void(void (*)(int, const char*, void*), void*)>("ggml_log_set")(
          [](int, const char*, void*) {}, nullptr);
      llama_.Function<void(const char*)>("ggml_backend_load_all_from_path")(
          llama_.folder().c_str());
      return true;
    }();
    (void)loaded;
    auto* device = llama_.Function<Device*(int)>("ggml_backend_dev_by_type")(kCpuDevice);
    engine_ =
        llama_.Function<Engine*(Device*, const char*)>("ggml_backend_dev_init")(device, nullptr);
    reinterpret_cast<void (*)(Engine*, int)>(CpuFunction(device, "ggml_backend_set_n_threads"))(
        engine_, threads);

    BufferType* type =
        llama_.Function<BufferType*(Device*)>("ggml_backend_dev_buffer_type")(device);
    if (repack && (type = RepackType(device)) == nullptr) return false;
    Context* weight_context = NewContext();
    Context* context = NewContext();
    const auto new_tensor =
        llama_.Function<TensorHandle*(Context*, int, int64_t, int64_t)>("ggml_new_tensor_2d");
    TensorHandle* input = new_tensor(context, 0, shape.inputs, shape.rows);
    graph_ = llama_.Function<Graph*(Context*)>("ggml_new_graph")(context);
    std::vector<TensorHandle*> matrices;
    std::vector<TensorHandle*> products;
    for (int i = 0; i < shape.matrices * shape.repeats; ++i) {
      if (i % shape.repeats == 0) {
        matrices.push_back(
            new_tensor(weight_context, static_cast<int>(shape.type), shape.inputs, shape.outputs));
      }
      products.push_back(llama_.Function<TensorHandle*(Context*, TensorHandle*, TensorHandle*)>(
          "ggml_mul_mat")(context, matrices.back(), input));
      llama_.Function<void(Graph*, TensorHandle*)>("ggml_build_forward_expand")(graph_,
                                                                                products.back());
    }
    buffers_.push_back(llama_.Function<BufferHandle*(Context*, BufferType*)>(
        "ggml_backend_alloc_ctx_tensors_from_buft")(weight_context, type));
    buffers_.push_back(llama_.Function<BufferHandle*(Context*, Engine*)>(
        "ggml_backend_alloc_ctx_tensors")(context, engine_));
    if (!llama_.Function<bool(Device*, TensorHandle*)>("ggml_backend_dev_supports_op")(
            device, products[0])) {
      return false;
    }
    const auto set = llama_.Function<void(TensorHandle*, const void*, size_t, size_t)>(
        "ggml_backend_tensor_set");
    for (TensorHandle* matrix : matrices) set(matrix, weight.data(), 0, weight.size());
    set(input, x.data(), 0, x.size_bytes());
    return true;
  }

  void Run() override {
    llama_.Function<int(Engine*, Graph*)>("ggml_backend_graph_compute")(engine_, graph_);
  }

 private:
  Context* NewContext() {
    contexts_.push_back(llama_.Function<Context*(InitParams)>("ggml_init")(
        InitParams{size_t{4} << 20, nullptr, /*no_alloc=*/true}));
    return contexts_.back();
  }
  void* CpuFunction(Device* device, const char* name) {
    void* reg = llama_.Function<void*(Device*)>("ggml_backend_dev_backend_reg")(device);
    return llama_.Function<void*(void*, const char*)>("ggml_backend_reg_get_proc_address")(reg,
                                                                                           name);
  }
  BufferType* RepackType(Device* device) {
    auto* extra = reinterpret_cast<BufferType** (*)(Device*)>(
        CpuFunction(device, "ggml_backend_dev_get_extra_bufts"));
    if (extra == nullptr) return nullptr;
    const auto name = llama_.Function<const char*(BufferType*)>("ggml_backend_buft_name");
    for (BufferType** type = extra(device); type != nullptr && *type != nullptr; ++type) {
      if (std::string_view(name(*type)).find("REPACK") != std::string_view::npos) return *type;
    }
    return nullptr;
  }

  const oracle::LlamaLibrary& llama_;
  Engine* engine_ = nullptr;
  Graph* graph_ = nullptr;
  std::vector<Context*> contexts_;
  std::vector<BufferHandle*> buffers_;
};

}  // namespace

std::unique_ptr<GgmlProduct> GgmlProduct::Create(const oracle::LlamaLibrary& llama,
                                                 const compute::ProductShape& shape,
                                                 std::span<const std::byte> weight,
                                                 std::span<const float> x, int threads,
                                                 bool repack) {
  auto product = std::make_unique<Product>(llama);
  if (!product->Build(shape, weight, x, threads, repack)) return nullptr;
  return product;
}

}  // namespace strata::bench
