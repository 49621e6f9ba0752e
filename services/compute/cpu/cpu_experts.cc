// Mixture of experts: choosing, running and summing them.
#include <algorithm>
#include <cassert>
#include <cmath>

#include "services/compute/cpu/cpu_backend_impl.h"
#include "services/compute/cpu/product_tiles.h"

namespace strata::compute {
namespace {

// Softmax of `logits`, then the k largest in descending order. Of equal probabilities the lower
// index wins. Logits that are not numbers count as minus infinity, so that the ids are always k
// different experts.
void RouteRow(const float* logits, int64_t n, int k, bool normalize, float* probability,
              int32_t* ids, float* weights) {
  float max = -INFINITY;
  for (int64_t i = 0; i < n; ++i) {
    if (logits[i] > max) max = logits[i];
  }
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    // Comparing first keeps infinity - infinity away.
    const float e = logits[i] == max ? 1.0f : std::exp(logits[i] - max);
    probability[i] = e > 0 ? e : 0;
    sum += probability[i];
  }
  const float inverse = sum > 0 ? 1.0f / sum : 0;
  for (int64_t i = 0; i < n; ++i) probability[i] *= inverse;

  float chosen = 0;
  for (int j = 0; j < k; ++j) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; ++i) {
      if (probability[i] > probability[best]) best = i;
    }
    ids[j] = static_cast<int32_t>(best);
    weights[j] = probability[best];
    chosen += probability[best];
    probability[best] = -1;  // taken
  }
  if (normalize && chosen > 0) {
    for (int j = 0; j < k; ++j) weights[j] /= chosen;
  }
}

// Where a flat tile number lies: task, chunk of the task's rows, chunk of outputs.
struct TilePlace {
  int64_t task;
  int64_t first_row;
  int rows;
  int64_t first_output;
  int outputs;
};

// Cuts every task into row chunks x output chunks; output chunks are outermost within a task, so
// that its weights pass through the cache once.
class TaskTiles {
 public:
  // `first_tile` has tasks.size() + 1 entries of memory.
  TaskTiles(std::span<const ExpertTask> tasks, int64_t* first_tile, bool down)
      : tasks_(tasks), first_tile_(first_tile), down_(down) {
    first_tile_[0] = 0;
    for (size_t i = 0; i < tasks.size(); ++i) {
      first_tile_[i + 1] = first_tile_[i] + RowChunks(i) * CeilDiv(Outputs(i), kTileOutputs);
    }
  }
  int64_t count() const { return first_tile_[tasks_.size()]; }
  TilePlace At(int64_t tile) const {
    const int64_t* begin = first_tile_;
    TilePlace place;
    place.task = std::upper_bound(begin, begin + tasks_.size() + 1, tile) - begin - 1;
    const int64_t inside = tile - first_tile_[place.task];
    const int64_t chunks = RowChunks(place.task);
    const auto rows = static_cast<int64_t>(tasks_[place.task].tokens.size());
    place.first_row = inside % chunks * kTileRows;
    place.rows = static_cast<int>(std::min<int64_t>(kTileRows, rows - place.first_row));
    place.first_output = inside / chunks * kTileOutputs;
    place.outputs =
        static_cast<int>(std::min<int64_t>(kTileOutputs, Outputs(place.task) - place.first_output));
    return place;
  }

 private:
  int64_t Outputs(size_t task) const {
    const FfnWeights& weights = tasks_[task].weights;
    return down_ ? weights.down.rows : weights.gate.rows;
  }
  int64_t RowChunks(size_t task) const {
    return CeilDiv(static_cast<int64_t>(tasks_[task].tokens.size()), kTileRows);
  }
  std::span<const ExpertTask> tasks_;
  int64_t* first_tile_;
  bool down_;
};

}  // namespace

void CpuBackend::Route(const Tensor& logits, int k, bool normalize, const Tensor& ids,
                       const Tensor& weights) {
  assert(k > 0 && k <= logits.cols && ids.cols == k && weights.cols == k);
  scratch_.Reset();
  const PerWorker probabilities = TakePerWorker(sizeof(float) * logits.cols);
  ForRows(logits.rows, logits.cols * (k + 8), [&](int64_t begin, int64_t end, int worker) {
    for (int64_t t = begin; t < end; ++t) {
      RouteRow(FloatRow(logits, t), logits.cols, k, normalize,
               reinterpret_cast<float*>(probabilities(worker)),
               reinterpret_cast<int32_t*>(ids.data + t * ids.row_bytes), FloatRow(weights, t));
    }
  });
}

void CpuBackend::ExpertFfn(const Tensor& x, std::span<const ExpertTask> tasks, const Tensor& out) {
  scratch_.Reset();
  unsigned x_forms = 0;
  unsigned hidden_forms = 0;
  int64_t pairs = 0;
  int64_t ff = 0;
  for (const ExpertTask& task : tasks) {
    const FfnWeights& w = task.weights;
    assert(w.gate.cols == x.cols && w.up.cols == x.cols && w.down.rows == out.cols);
    assert(w.gate.rows == w.up.rows && w.down.cols == w.gate.rows);
    assert(task.tokens.size() == task.outputs.size());
    x_forms |= 1u << static_cast<int>(FormOf(w.gate.type));
    x_forms |= 1u << static_cast<int>(FormOf(w.up.type));
    hidden_forms |= 1u << static_cast<int>(FormOf(w.down.type));
    pairs += static_cast<int64_t>(task.tokens.size());
    assert(ff == 0 || ff == w.gate.rows);
    ff = w.gate.rows;
  }
  if (pairs == 0) return;

  auto* first_pair = scratch_.Take<int64_t>(tasks.size());
  int64_t pair = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    first_pair[i] = pair;
    pair += static_cast<int64_t>(tasks[i].tokens.size());
  }
  Tensor hidden{TensorType::kF32, pairs, ff, static_cast<size_t>(ff) * sizeof(float), nullptr};
  hidden.data = scratch_.Take(hidden.row_bytes * pairs);
  const PerWorker kernel_scratch = TakePerWorker(ProductScratch(std::max(x.cols, ff)));
  constexpr size_t kResult = kTileOutputs * kTileRows;
  const PerWorker results = TakePerWorker(sizeof(float) * 2 * kResult);

  // Gate, up and their activation: the tile of one task's hidden values.
  const Activations inputs = Prepare(x, x_forms);
  const TaskTiles up_tiles(tasks, scratch_.Take<int64_t>(tasks.size() + 1), /*down=*/false);
  pool_.ParallelFor(up_tiles.count(), [&](int64_t tile, int worker) {
    const TilePlace place = up_tiles.At(tile);
    const ExpertTask& task = tasks[place.task];
    auto* gate = reinterpret_cast<float*>(results(worker));
    float* up = gate + kResult;
    const auto product = [&](const Tensor& weight, float* result) {
      const std::byte* rows[kTileRows] = {};
      for (int r = 0; r < place.rows; ++r) {
        rows[r] = inputs.Row(FormOf(weight.type), task.tokens[place.first_row + r]);
      }
      RunProduct(weight, place.first_output, place.outputs, rows, place.rows, result, kTileOutputs,
                 kernel_scratch(worker));
    };
    product(task.weights.gate, gate);
    product(task.weights.up, up);
    for (int r = 0; r < place.rows; ++r) {
      float* to =
          FloatRow(hidden, first_pair[place.task] + place.first_row + r) + place.first_output;
      kernels_.swiglu(gate + r * kTileOutputs, up + r * kTileOutputs, place.outputs, to);
    }
  });

  const Activations hiddens = Prepare(hidden, hidden_forms);
  const TaskTiles down_tiles(tasks, scratch_.Take<int64_t>(tasks.size() + 1), /*down=*/true);
  pool_.ParallelFor(down_tiles.count(), [&](int64_t tile, int worker) {
    const TilePlace place = down_tiles.At(tile);
    const ExpertTask& task = tasks[place.task];
    const Tensor& weight = task.weights.down;
    const std::byte* rows[kTileRows] = {};
    for (int r = 0; r < place.rows; ++r) {
      rows[r] = hiddens.Row(FormOf(weight.type), first_pair[place.task] + place.first_row + r);
    }
    auto* result = reinterpret_cast<float*>(results(worker));
    RunProduct(weight, place.first_output, place.outputs, rows, place.rows, result, kTileOutputs,
               kernel_scratch(worker));
    for (int r = 0; r < place.rows; ++r) {
      float* to = FloatRow(out, task.outputs[place.first_row + r]) + place.first_output;
      std::copy_n(result + r * kTileOutputs, place.outputs, to);
    }
  });
}

void CpuBackend::CombineExperts(const Tensor& expert_out, const Tensor& weights, const Tensor& y) {
  const auto k = static_cast<int>(weights.cols);
  assert(expert_out.rows == weights.rows * k && y.rows == weights.rows &&
         y.cols == expert_out.cols);
  const auto stride = static_cast<int64_t>(expert_out.row_bytes / sizeof(float));
  ForRows(y.rows, y.cols * k, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels_.combine(FloatRow(expert_out, t * k), stride, FloatRow(weights, t), k, y.cols,
                       FloatRow(y, t));
    }
  });
}

}  // namespace strata::compute
