// Softmax attention by tiles of keys with a running maximum ("online softmax").
//
// Keys are visited in blocks of kKeys tokens aligned to position 0, in ascending order, whatever
// the page size and whichever rows share the tile; a query row skips the blocks it does not see. So
// the order of every sum is a function of the row's own position and window alone. A block of K and
// V is gathered (and converted to float) once for all query rows and heads of the tile.
//
// For a query with running maximum m, sum l and weighted values a, a block with scores s_j does
//   m' = max(m, max_j s_j),  c = exp(m - m'),  p_j = exp(s_j - m'),
//   l = l c + sum_j p_j,     a = a c + sum_j p_j v_j,     and finally out = a / l.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "services/compute/cpu/kernels.h"

namespace strata::compute {

template <typename V>
struct AttentionKernel {
  using F = typename V::F;
  static constexpr int kKeys = 32;
  static constexpr int kPad = 16;  // head rows are padded with zeros to a multiple of this

  static int Padded(int head_dim) { return (head_dim + kPad - 1) / kPad * kPad; }

  // A query's running state; its accumulated values stand in `values`.
  struct Running {
    float max;
    float sum;
  };

  static size_t ScratchBytes(int head_dim, int queries) {
    const size_t padded = Padded(head_dim);
    return sizeof(float) * (2 * kKeys * padded + kKeys + queries * 2 * padded) +
           sizeof(Running) * queries;
  }

  static void GatherRow(const AttentionTile& tile, const std::byte* row, float* out) {
    const int n = tile.head_dim;
    if (tile.kv_type == TensorType::kF32) {
      std::memcpy(out, row, n * sizeof(float));
      return;
    }
    const auto* half = reinterpret_cast<const uint16_t*>(row);
    int i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) V::Store(out + i, V::LoadHalf(half + i));
    if (i < n) {
      uint16_t rest[V::kLanes] = {};
      std::memcpy(rest, half + i, (n - i) * sizeof(uint16_t));
      V::StorePartial(out + i, V::LoadHalf(rest), n - i);
    }
  }

  static float Dot(const float* a, const float* b, int n) {
    F sum = V::Zero();
    for (int i = 0; i < n; i += V::kLanes) sum = V::MulAdd(V::Load(a + i), V::Load(b + i), sum);
    return V::ReduceAdd(sum);
  }

  // Takes keys [begin, end) of the block into one query's state.
  static void Update(const float* q, const float* k, const float* v, int begin, int end, int padded,
                     float scale, float* p, Running* running, float* values) {
    float block_max = -INFINITY;
    for (int j = begin; j < end; ++j) {
      p[j] = Dot(q, k + j * padded, padded) * scale;
      block_max = p[j] > block_max ? p[j] : block_max;
    }
    const float max = running->max > block_max ? running->max : block_max;
    for (int j = 0; j < begin; ++j) p[j] = max;
    for (int j = end; j < kKeys; ++j) p[j] = max;
    for (int j = 0; j < kKeys; j += V::kLanes) {
      V::Store(p + j, V::Exp(V::Sub(V::Load(p + j), V::Set1(max))));
    }
    float correction = 0;  // of the first block: there is nothing yet to correct
    if (running->max != -INFINITY) {
      float lanes[V::kLanes];
      V::Store(lanes, V::Exp(V::Set1(running->max - max)));
      correction = lanes[0];
    }
    float sum = 0;
    for (int j = begin; j < end; ++j) sum += p[j];
    running->sum = running->sum * correction + sum;
    running->max = max;
    for (int d = 0; d < padded; d += V::kLanes) {
      F a = V::Mul(V::Load(values + d), V::Set1(correction));
      for (int j = begin; j < end; ++j) {
        a = V::MulAdd(V::Set1(p[j]), V::Load(v + j * padded + d), a);
      }
      V::Store(values + d, a);
    }
  }

  static void Run(const AttentionTile& tile) {
    const int padded = Padded(tile.head_dim);
    const int queries = tile.rows * tile.group;
    auto* k = reinterpret_cast<float*>(tile.scratch);
    float* v = k + kKeys * padded;
    float* p = v + kKeys * padded;
    float* q = p + kKeys;
    float* values = q + queries * padded;
    auto* running = reinterpret_cast<Running*>(values + queries * padded);
    std::memset(k, 0, sizeof(float) * 2 * kKeys * padded);  // the padding must be zero
    std::memset(q, 0, sizeof(float) * 2 * queries * padded);
    int last = 0;
    int first = INT32_MAX;
    for (int r = 0; r < tile.rows; ++r) {
      const int position = tile.position[r];
      last = position > last ? position : last;
      const int begin = FirstKey(tile, position);
      first = begin < first ? begin : first;
      for (int h = 0; h < tile.group; ++h) {
        const int i = r * tile.group + h;
        std::memcpy(q + i * padded, tile.q[r] + h * tile.head_dim, tile.head_dim * sizeof(float));
        running[i] = {-INFINITY, 0};
      }
    }

    for (int block = first / kKeys * kKeys; block <= last; block += kKeys) {
      const int from = block < first ? first : block;
      for (int token = from; token <= last && token < block + kKeys; ++token) {
        const int64_t row =
            static_cast<int64_t>(tile.page_table[token / tile.page_tokens]) * tile.page_tokens +
            token % tile.page_tokens;
        GatherRow(tile, tile.k + row * tile.k_row_bytes, k + (token - block) * padded);
        GatherRow(tile, tile.v + row * tile.v_row_bytes, v + (token - block) * padded);
      }
      for (int r = 0; r < tile.rows; ++r) {
        const int position = tile.position[r];
        const int lowest = FirstKey(tile, position);
        const int begin = lowest > block ? lowest - block : 0;
        const int end = position - block + 1 < kKeys ? position - block + 1 : kKeys;
        if (begin >= end) continue;
        for (int h = 0; h < tile.group; ++h) {
          const int i = r * tile.group + h;
          Update(q + i * padded, k, v, begin, end, padded, tile.scale, p, running + i,
                 values + i * padded);
        }
      }
    }

    for (int r = 0; r < tile.rows; ++r) {
      for (int h = 0; h < tile.group; ++h) {
        const int i = r * tile.group + h;
        float* out = tile.out[r] + h * tile.head_dim;
        for (int d = 0; d < tile.head_dim; ++d) out[d] = values[i * padded + d] / running[i].sum;
      }
    }
  }

  static int FirstKey(const AttentionTile& tile, int position) {
    return tile.window > 0 && position >= tile.window ? position - tile.window + 1 : 0;
  }
};

}  // namespace strata::compute
