#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/quant/blocks.h"
#include "common/quant/decode.h"
#include "common/quant/float16.h"
#include "services/compute/cpu/cpu_backend_impl.h"
#include "services/compute/cpu/product_tiles.h"

namespace strata::compute {
namespace {

// Queries (heads of rows) of one tile, at most: they share the gathering of K and V, and their sums
// have to fit the second-level cache.
constexpr int kTileQueries = 128;

// Rotates the pairs (a[i], b[i]) by the angles of one row of a rope table.
void Rotate(float* a, float* b, int64_t step, int64_t pairs, const float* cos_sin) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float x = a[i * step];
    const float y = b[i * step];
    const float c = cos_sin[2 * i];
    const float s = cos_sin[2 * i + 1];
    a[i * step] = x * c - y * s;
    b[i * step] = x * s + y * c;
  }
}

// w = d q with d = max |x| / 127. Faster than the search for the best d that weights are worth;
// where a value is not finite, the block is not a number, as it would be in a type without blocks.
void StoreQ80(const float* x, int64_t n, quant::BlockQ8_0* out) {
  constexpr int kBlock = quant::BlockQ8_0::kWeights;
  for (int64_t i = 0; i < n; i += kBlock, ++out) {
    float most = 0;
    bool finite = true;
    for (int j = 0; j < kBlock; ++j) {
      const float size = std::abs(x[i + j]);
      finite &= size <= std::numeric_limits<float>::max();
      most = std::max(most, size);
    }
    out->d = quant::FloatToHalf(finite ? most / 127 : NAN);
    // What d is as a half decides: nothing is left of values that are too small for one.
    const float d = quant::HalfToFloat(out->d);
    const float inverse = finite && d > 0 ? 1 / d : 0;
    for (int j = 0; j < kBlock; ++j) {
      const float q = finite ? std::clamp(x[i + j] * inverse, -127.0F, 127.0F) : 0;
      out->qs[j] = static_cast<int8_t>(std::nearbyint(q));
    }
  }
}

}  // namespace

void CpuBackend::RopeTable(std::span<const int32_t> positions, const Tensor& inv_freq,
                           float magnitude, const Tensor& cos_sin) {
  const int64_t n = inv_freq.cols;
  assert(cos_sin.rows == static_cast<int64_t>(positions.size()) && cos_sin.cols == 2 * n);
  const float* frequency = FloatRow(inv_freq, 0);
  ForRows(cos_sin.rows, n * 32, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* out = FloatRow(cos_sin, t);
      for (int64_t i = 0; i < n; ++i) {
        const double angle = static_cast<double>(positions[t]) * static_cast<double>(frequency[i]);
        out[2 * i] = static_cast<float>(magnitude * std::cos(angle));
        out[2 * i + 1] = static_cast<float>(magnitude * std::sin(angle));
      }
    }
  });
}

void CpuBackend::NormRope(const Tensor& x, int head_dim, const Tensor& norm_weight, float eps,
                          const Tensor& cos_sin, RopeStyle style) {
  assert(x.cols % head_dim == 0 && cos_sin.rows == x.rows && cos_sin.cols <= head_dim);
  const float* weight = norm_weight.empty() ? nullptr : FloatRow(norm_weight, 0);
  const int64_t pairs = cos_sin.cols / 2;
  ForRows(x.rows, x.cols * 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* angles = FloatRow(cos_sin, t);
      for (int64_t h = 0; h < x.cols / head_dim; ++h) {
        float* head = FloatRow(x, t) + h * head_dim;
        if (weight != nullptr) kernels_.rms_norm(head, weight, eps, head_dim, head);
        if (style == RopeStyle::kInterleaved) {
          Rotate(head, head + 1, 2, pairs, angles);
        } else {
          Rotate(head, head + pairs, 1, pairs, angles);
        }
      }
    }
  });
}

void CpuBackend::StoreKv(const Tensor& k, const Tensor& v, std::span<const int32_t> slots,
                         const KvPool& pool) {
  assert(k.rows == static_cast<int64_t>(slots.size()) && v.rows == k.rows);
  const auto store = [this](const float* from, const Tensor& to, int64_t slot) {
    std::byte* row = to.data + slot * to.row_bytes;
    switch (to.type) {
      case TensorType::kF32:
        std::memcpy(row, from, to.cols * sizeof(float));
        break;
      case TensorType::kBF16:
        for (int64_t i = 0; i < to.cols; ++i) {
          reinterpret_cast<uint16_t*>(row)[i] = quant::FloatToBf16(from[i]);
        }
        break;
      case TensorType::kQ8_0:
        StoreQ80(from, to.cols, reinterpret_cast<quant::BlockQ8_0*>(row));
        break;
      default:
        assert(to.type == TensorType::kF16);
        kernels_.to_half(from, to.cols, reinterpret_cast<uint16_t*>(row));
        break;
    }
  };
  ForRows(k.rows, k.cols * 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      assert(slots[t] >= 0 && slots[t] < pool.k.rows);
      store(FloatRow(k, t), pool.k, slots[t]);
      store(FloatRow(v, t), pool.v, slots[t]);
    }
  });
}

void CpuBackend::RotateKeys(const KvPool& pool, std::span<const int32_t> slots,
                            const Tensor& cos_sin, RopeStyle style) {
  assert(cos_sin.rows == 1 && cos_sin.cols <= pool.head_dim);
  scratch_.Reset();
  const float* angles = FloatRow(cos_sin, 0);
  const int64_t pairs = cos_sin.cols / 2;
  const int64_t width = pool.k.cols;
  const PerWorker rows = TakePerWorker(static_cast<size_t>(width) * sizeof(float));
  const auto count = static_cast<int64_t>(slots.size());
  ForRows(count, width * 4, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      std::byte* stored = pool.k.data + slots[i] * pool.k.row_bytes;
      const bool half = pool.k.type == TensorType::kF16;
      float* keys = reinterpret_cast<float*>(half ? rows(worker) : stored);
      if (half) quant::DecodeRow(TensorType::kF16, stored, keys, width);
      for (int64_t h = 0; h < width; h += pool.head_dim) {
        if (style == RopeStyle::kInterleaved) {
          Rotate(keys + h, keys + h + 1, 2, pairs, angles);
        } else {
          Rotate(keys + h, keys + h + pairs, 1, pairs, angles);
        }
      }
      if (half) kernels_.to_half(keys, width, reinterpret_cast<uint16_t*>(stored));
    }
  });
}

void CpuBackend::Attention(const Tensor& q, const AttentionRows& rows, const KvPool& pool,
                           float scale, int window, const Tensor& out) {
  assert(static_cast<int64_t>(rows.sequence.size()) == q.rows && q.cols == out.cols);
  assert(q.cols % pool.head_dim == 0 && pool.k.type == pool.v.type);
  if (q.rows == 0) return;
  scratch_.Reset();
  const int heads = static_cast<int>(q.cols / pool.head_dim);
  const int group = heads / pool.kv_heads;
  const int tile_rows = std::max(1, kTileQueries / group);
  const size_t head_bytes = *RowBytes(pool.k.type, static_cast<uint64_t>(pool.head_dim));

  // Runs of rows of one sequence, cut into tiles.
  auto* tile_begin = scratch_.Take<int32_t>(q.rows + 1);
  int64_t tiles = 0;
  for (int64_t r = 0; r < q.rows; ++r) {
    if (r == 0 || rows.sequence[r] != rows.sequence[r - 1] ||
        r - tile_begin[tiles - 1] == tile_rows) {
      tile_begin[tiles++] = static_cast<int32_t>(r);
    }
  }
  tile_begin[tiles] = static_cast<int32_t>(q.rows);
  const PerWorker kernel_scratch =
      TakePerWorker(kernels_.attention_scratch(pool.head_dim, tile_rows * group));

  pool_.ParallelFor(tiles * pool.kv_heads, [&](int64_t index, int worker) {
    // The last rows of a prompt chunk see the most keys: start with them.
    const int64_t t = tiles - 1 - index / pool.kv_heads;
    const int64_t kv_head = index % pool.kv_heads;
    const int first = tile_begin[t];
    const float* queries[kTileQueries];
    float* outs[kTileQueries];
    AttentionTile tile;
    tile.head_dim = pool.head_dim;
    tile.group = group;
    tile.scale = scale;
    tile.window = window;
    tile.rows = tile_begin[t + 1] - first;
    tile.position = rows.position.data() + first;
    for (int r = 0; r < tile.rows; ++r) {
      queries[r] = FloatRow(q, first + r) + kv_head * group * pool.head_dim;
      outs[r] = FloatRow(out, first + r) + kv_head * group * pool.head_dim;
    }
    tile.q = queries;
    tile.out = outs;
    tile.kv_type = pool.k.type;
    tile.head_bytes = head_bytes;
    tile.k = pool.k.data + static_cast<size_t>(kv_head) * head_bytes;
    tile.v = pool.v.data + static_cast<size_t>(kv_head) * head_bytes;
    tile.k_row_bytes = pool.k.row_bytes;
    tile.v_row_bytes = pool.v.row_bytes;
    tile.page_table = rows.page_tables[rows.sequence[first]].data();
    tile.page_tokens = pool.page_tokens;
    tile.scratch = kernel_scratch(worker);
    kernels_.attention(tile);
  });
}

}  // namespace strata::compute
