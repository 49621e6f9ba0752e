// Matrix products: tiles of outputs x rows shared out among the workers.
#include <algorithm>
#include <cassert>

#include "common/quant/weight_layout.h"
#include "services/compute/cpu/activations.h"
#include "services/compute/cpu/cpu_backend_impl.h"
#include "services/compute/cpu/product_tiles.h"

namespace strata::compute {

CpuBackend::Activations CpuBackend::Prepare(const Tensor& x, unsigned needed) {
  Activations out = {};
  out.data[static_cast<int>(ActivationForm::kF32)] = x.data;
  out.row_bytes[static_cast<int>(ActivationForm::kF32)] = x.row_bytes;
  const auto quantize = [&](ActivationForm form, size_t bytes,
                            void (*kernel)(const float*, int64_t, std::byte*)) {
    if ((needed >> static_cast<int>(form) & 1) == 0) return;
    const size_t row_bytes = (bytes + 63) / 64 * 64;
    std::byte* data = scratch_.Take(row_bytes * x.rows);
    ForRows(x.rows, x.cols, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        kernel(FloatRow(x, t), x.cols, data + t * row_bytes);
      }
    });
    out.data[static_cast<int>(form)] = data;
    out.row_bytes[static_cast<int>(form)] = row_bytes;
  };
  quantize(ActivationForm::kInt8x32, Int8Row32::Bytes(x.cols), kernels_.quantize32);
  quantize(ActivationForm::kInt8x32Quads, Int8Row32::Bytes(x.cols), kernels_.quantize32_quads);
  quantize(ActivationForm::kInt8x256, Int8Row256::Bytes(x.cols), kernels_.quantize256);
  return out;
}

void CpuBackend::RunProduct(const Tensor& weight, int64_t first_output, int outputs,
                            const std::byte* const* rows, int row_count, float* out,
                            int64_t out_stride, std::byte* scratch) const {
  ProductTile tile;
  tile.type = weight.type;
  tile.weights = weight.data + first_output * weight.row_bytes;
  tile.weight_row_bytes = weight.row_bytes;
  tile.outputs = outputs;
  tile.inputs = weight.cols;
  tile.rows = rows;
  tile.row_count = row_count;
  tile.out = out;
  tile.out_stride = out_stride;
  tile.scratch = scratch;
  const auto type = static_cast<size_t>(weight.type);
  if (weight.layout == quant::WeightLayout::kGguf) {
    kernels_.product[type](tile);
  } else if (kernels_.rows8[type] != nullptr) {
    kernels_.rows8[type](tile);
  } else {
    RunApart(tile);
  }
}

// Puts interleaved rows apart, kOutputsPadding of them at a time, and multiplies with those.
void CpuBackend::RunApart(ProductTile tile) const {
  std::byte* const apart = tile.scratch + ApartOffset(tile.inputs);
  const std::byte* weights = tile.weights;
  tile.weights = apart;
  for (int left = tile.outputs; left > 0; left -= kOutputsPadding) {
    tile.outputs = std::min(left, kOutputsPadding);
    quant::DeinterleaveRows(tile.type, tile.outputs, tile.weight_row_bytes, weights, apart);
    kernels_.product[static_cast<size_t>(tile.type)](tile);
    weights += kOutputsPadding * tile.weight_row_bytes;
    tile.out += kOutputsPadding;
  }
}

size_t CpuBackend::ApartOffset(int64_t inputs) const {
  return (kernels_.product_scratch(inputs) + 63) / 64 * 64;
}

size_t CpuBackend::ProductScratch(int64_t inputs) const {
  constexpr size_t kMostBytes = 2;  // of a weight that may be interleaved
  return ApartOffset(inputs) + kOutputsPadding * kMostBytes * static_cast<size_t>(inputs);
}

void CpuBackend::MatMul(const Tensor& x, std::span<const Tensor> weights,
                        std::span<const Tensor> biases, std::span<const Tensor> outs,
                        bool accumulate) {
  assert(weights.size() == outs.size() && (biases.empty() || biases.size() == outs.size()));
  if (x.rows == 0) return;
  scratch_.Reset();
  unsigned needed = 0;
  int64_t output_tiles = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    assert(weights[i].cols == x.cols && outs[i].cols == weights[i].rows && outs[i].rows == x.rows);
    needed |= 1u << static_cast<int>(FormOf(weights[i].type));
    output_tiles += CeilDiv(weights[i].rows, kTileOutputs);
  }
  const Activations activations = Prepare(x, needed);
  const PerWorker kernel_scratch = TakePerWorker(ProductScratch(x.cols));
  const PerWorker results = TakePerWorker(sizeof(float) * kTileOutputs * kTileRows);
  const int64_t row_tiles = CeilDiv(x.rows, kTileRows);

  pool_.ParallelFor(output_tiles * row_tiles, [&](int64_t tile, int worker) {
    // Row chunks of the same weights follow each other: the weights are still in the cache.
    int64_t output_tile = tile / row_tiles;
    size_t i = 0;
    while (output_tile >= CeilDiv(weights[i].rows, kTileOutputs)) {
      output_tile -= CeilDiv(weights[i].rows, kTileOutputs);
      ++i;
    }
    const Tensor& weight = weights[i];
    const int64_t first = output_tile * kTileOutputs;
    const int outputs = static_cast<int>(std::min<int64_t>(kTileOutputs, weight.rows - first));
    const int64_t first_row = tile % row_tiles * kTileRows;
    const int row_count = static_cast<int>(std::min<int64_t>(kTileRows, x.rows - first_row));
    const std::byte* rows[kTileRows] = {};
    for (int r = 0; r < row_count; ++r) {
      rows[r] = activations.Row(FormOf(weight.type), first_row + r);
    }
    auto* result = reinterpret_cast<float*>(results(worker));
    RunProduct(weight, first, outputs, rows, row_count, result, kTileOutputs,
               kernel_scratch(worker));

    const float* bias = nullptr;
    if (!biases.empty() && !biases[i].empty()) bias = FloatRow(biases[i], 0) + first;
    for (int r = 0; r < row_count; ++r) {
      float* out = FloatRow(outs[i], first_row + r) + first;
      float* from = result + r * kTileOutputs;
      if (bias != nullptr) kernels_.add(bias, from, outputs);
      if (accumulate) {
        kernels_.add(from, out, outputs);
      } else {
        std::copy_n(from, outputs, out);
      }
    }
  });
}

}  // namespace strata::compute
