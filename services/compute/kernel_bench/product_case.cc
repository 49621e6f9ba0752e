#include "services/compute/kernel_bench/product_case.h"

#include <algorithm>
#include <chrono>

#include "common/base/status.h"

namespace strata::compute {
namespace {

constexpr double kMemoryBytes = 192e6;
constexpr int64_t kCacheBytes = 256 << 10;
constexpr int kCacheRepeats = 96;
// Repeats that share one quantisation of the activations, as gate and up of all chosen experts do.
constexpr int kShared = 8;

}  // namespace

double ProductShape::products() const {
  return static_cast<double>(inputs) * static_cast<double>(outputs * rows) * matrices * repeats;
}

double ProductShape::bytes() const {
  return static_cast<double>(RowBytes(type, inputs).value_or(0)) * static_cast<double>(outputs) *
         matrices * repeats;
}

ProductShape FromMemory(TensorType type, int64_t rows) {
  ProductShape shape{.type = type, .rows = rows};
  shape.matrices = std::max(1, static_cast<int>(kMemoryBytes / shape.bytes()));
  // With many rows arithmetic is the limit, whatever the weights come from: fewer will do.
  if (rows >= 16) shape.matrices = std::max(1, shape.matrices / 8);
  return shape;
}

ProductShape FromCache(TensorType type) {
  ProductShape shape{.type = type, .outputs = 1, .repeats = kCacheRepeats};
  const auto row_bytes = static_cast<int64_t>(RowBytes(type, shape.inputs).value_or(1));
  shape.outputs = std::max<int64_t>(16, kCacheBytes / row_bytes / 16 * 16);
  return shape;
}

ProductCase::ProductCase(Backend* backend, const ProductShape& shape)
    : backend_(backend),
      shape_(shape),
      weight_(testing::RandomWeights(shape.type, shape.outputs, shape.inputs, /*seed=*/1)),
      x_(testing::RandomFloats(shape.rows, shape.inputs, /*seed=*/2)),
      y_(testing::MakeTensor(TensorType::kF32, shape.rows, shape.outputs)) {}

absl::StatusOr<std::unique_ptr<ProductCase>> ProductCase::Create(Backend* backend,
                                                                 const ProductShape& shape) {
  std::unique_ptr<ProductCase> product(new ProductCase(backend, shape));
  const std::span<const std::byte> one = product->weight();
  // In one piece of huge pages, as the arena holds the weights of experts. (LoadWeight would keep
  // them as long as the back end lives.)
  STRATA_ASSIGN_OR_RETURN(product->memory_,
                          backend->Allocate(one.size() * shape.matrices, "weights"));
  for (int i = 0; i < shape.matrices; ++i) {
    std::byte* at = product->memory_->data() + i * one.size();
    Tensor weight = product->weight_.tensor;
    weight.data = at;
    weight.layout = shape.layout;
    if (shape.layout == quant::WeightLayout::kRows8) {
      quant::InterleaveRows(shape.type, weight.rows, weight.row_bytes, one.data(), at);
    } else {
      backend->CopyToDevice(at, one);
    }
    product->weights_.insert(product->weights_.end(), shape.repeats, weight);
  }
  return product;
}

double ProductCase::Run() {
  const auto shared = static_cast<size_t>(std::min(shape_.repeats, kShared));
  const std::vector<Tensor> outs(shared, y_.tensor);
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < weights_.size(); i += shared) {
    backend_->MatMul(x_.tensor, std::span(weights_).subspan(i, shared), {}, outs,
                     /*accumulate=*/false);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace strata::compute
