// Softmax attention by tiles of keys with a running maximum ("online softmax").
//
// Keys are visited in blocks of kKeys tokens aligned to position 0, in ascending order, whatever
// the page size and whichever rows share the tile; a query row skips the blocks it does not see. So
// the order of every sum is a function of the row's own position and window alone. A block of K and
// V is gathered (and converted to float) once for all query rows and heads of the tile; for few of
// them, V is converted as it is used instead: what is written has to fit the first-level cache.
//
// For a query with running maximum m, sum l and weighted values a, a block with scores s_j does
//   m' = max(m, max_j s_j),  c = exp(m - m'),  p_j = exp(s_j - m'),
//   l = l c + sum_j p_j,     a = a c + sum_j p_j v_j,     and finally out = a / l.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/quant/blocks.h"
#include "services/compute/cpu/kernels.h"

namespace strata::compute {

template <typename V>
struct AttentionKernel {
  using F = typename V::F;
  static constexpr int kKeys = 32;
  static constexpr int kPad = 16;  // head rows are padded with zeros to a multiple of this

  static int Padded(int head_dim) { return (head_dim + kPad - 1) / kPad * kPad; }

  // Queries that share the reading of a tile, and vectors of V that share a weight: as many sums as
  // fit into registers, enough to hide the latency of their additions.
  static constexpr int kQueries = V::kLanes == 16 ? 4 : V::kLanes == 8 ? 2 : 1;
  static constexpr int kVectors = 4;
  static constexpr int kKeyVectors = kKeys / V::kLanes;

  // A query's running state; its accumulated values stand in Tile::values.
  struct Running {
    float max;
    float sum;
  };

  // Where things lie in the scratch memory.
  struct Tile {
    int padded;
    float* k;        // [padded][kKeys]: keys are lanes
    float* v;        // [kKeys][padded]
    float* staging;  // [kLanes][padded]: keys as they lie in the cache
    float* p;        // [kQueries][kKeys] scores, then weights
    float* q;        // [queries][padded]
    float* values;   // [queries][padded]
    Running* running;

    Tile(std::byte* scratch, int head_dim, int queries) : padded(Padded(head_dim)) {
      k = reinterpret_cast<float*>(scratch);
      v = k + kKeys * padded;
      staging = v + kKeys * padded;
      p = staging + V::kLanes * padded;
      q = p + kQueries * kKeys;
      values = q + queries * padded;
      running = reinterpret_cast<Running*>(values + queries * padded);
    }
  };

  static size_t ScratchBytes(int head_dim, int queries) {
    const size_t padded = Padded(head_dim);
    return sizeof(float) *
               ((2 * kKeys + V::kLanes) * padded + kQueries * kKeys + 2 * queries * padded) +
           sizeof(Running) * queries;
  }

  // The values of a block's keys: gathered, or where they lie.
  struct GatheredValues {
    const float* v;
    int64_t stride;
    F Load(int key, int d) const { return V::Load(v + key * stride + d); }
  };
  template <TensorType kType>
  struct StoredValues {
    const std::byte* row[kKeys];
    F Load(int key, int d) const { return LoadStored<kType>(row[key], d); }
  };
  // kLanes values from number d on of a row; d is a multiple of kLanes.
  template <TensorType kType>
  static F LoadStored(const std::byte* row, int d) {
    if constexpr (kType == TensorType::kQ8_0) {
      const auto& block = reinterpret_cast<const quant::BlockQ8_0*>(row)[d / 32];
      // The scale is converted together with the codes behind it, which are as good as any bits.
      static_assert(V::kLanes * sizeof(uint16_t) <= sizeof(block));
      return V::Mul(V::Set1(V::First(V::LoadHalf(&block.d))), V::LoadBytes(block.qs + d % 32));
    } else if constexpr (kType == TensorType::kBF16) {
      return V::LoadBf16(reinterpret_cast<const uint16_t*>(row) + d);
    } else {
      return V::LoadHalf(reinterpret_cast<const uint16_t*>(row) + d);
    }
  }
  // Up to this many queries convert values themselves.
  static constexpr int kFewQueries = 16;

  static void GatherRow(const AttentionTile& tile, const std::byte* row, float* out) {
    switch (tile.kv_type) {
      case TensorType::kF32:
        std::memcpy(out, row, tile.head_dim * sizeof(float));
        break;
      case TensorType::kBF16:
        GatherStored<TensorType::kBF16>(tile.head_dim, row, out);
        break;
      case TensorType::kQ8_0:
        GatherStored<TensorType::kQ8_0>(tile.head_dim, row, out);
        break;
      default:
        GatherStored<TensorType::kF16>(tile.head_dim, row, out);
        break;
    }
  }
  template <TensorType kType>
  static void GatherStored(int n, const std::byte* row, float* out) {
    int i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) V::Store(out + i, LoadStored<kType>(row, i));
    if constexpr (kType != TensorType::kQ8_0) {  // whose heads are whole blocks
      if (i == n) return;
      uint16_t rest[V::kLanes] = {};
      std::memcpy(rest, row + i * sizeof(uint16_t), (n - i) * sizeof(uint16_t));
      V::StorePartial(out + i, LoadStored<kType>(reinterpret_cast<const std::byte*>(rest), 0),
                      n - i);
    }
  }

  // Scores of kQ queries against all keys of the block; the caller ignores keys it must not see.
  template <int kQ>
  static void Scores(const Tile& tile, const float* q, float scale) {
    F sum[kQ][kKeyVectors];
    for (int i = 0; i < kQ; ++i) {
      for (int j = 0; j < kKeyVectors; ++j) sum[i][j] = V::Zero();
    }
    for (int d = 0; d < tile.padded; ++d) {
      F k[kKeyVectors];
      for (int j = 0; j < kKeyVectors; ++j) k[j] = V::Load(tile.k + d * kKeys + j * V::kLanes);
      for (int i = 0; i < kQ; ++i) {
        const F x = V::Set1(q[i * tile.padded + d]);
        for (int j = 0; j < kKeyVectors; ++j) sum[i][j] = V::MulAdd(x, k[j], sum[i][j]);
      }
    }
    const F factor = V::Set1(scale);
    for (int i = 0; i < kQ; ++i) {
      for (int j = 0; j < kKeyVectors; ++j) {
        V::Store(tile.p + i * kKeys + j * V::kLanes, V::Mul(sum[i][j], factor));
      }
    }
  }

  // Turns one query's scores of keys [begin, end) into weights and updates its maximum and sum.
  // Returns the factor that corrects what was accumulated before.
  static float Softmax(float* p, int begin, int end, Running* running) {
    for (int j = 0; j < begin; ++j) p[j] = -INFINITY;
    for (int j = end; j < kKeys; ++j) p[j] = -INFINITY;
    F most = V::Load(p);
    for (int j = 1; j < kKeyVectors; ++j) most = V::Max(most, V::Load(p + j * V::kLanes));
    const float block_max = V::ReduceMax(most);
    const float max = running->max > block_max ? running->max : block_max;
    F sum = V::Zero();
    for (int j = 0; j < kKeyVectors; ++j) {
      const F weight = V::Exp(V::Sub(V::Load(p + j * V::kLanes), V::Set1(max)));
      V::Store(p + j * V::kLanes, weight);
      sum = V::Add(sum, weight);
    }
    float correction = 0;  // of the first block: there is nothing yet to correct
    if (running->max != -INFINITY) {
      correction = V::First(V::Exp(V::Set1(running->max - max)));
    }
    running->sum = running->sum * correction + V::ReduceAdd(sum);
    running->max = max;
    return correction;
  }

  // values = values * correction + sum_j p_j v_j for kQ queries and kD vectors of their values.
  template <int kQ, int kD, typename Values>
  static void Accumulate(const Tile& tile, const Values& v, int first_d, int begin, int end,
                         const float* correction, float* values) {
    F sum[kQ][kD];
    for (int i = 0; i < kQ; ++i) {
      for (int d = 0; d < kD; ++d) {
        sum[i][d] =
            V::Mul(V::Load(values + i * tile.padded + d * V::kLanes), V::Set1(correction[i]));
      }
    }
    for (int j = begin; j < end; ++j) {
      F row[kD];
      for (int d = 0; d < kD; ++d) row[d] = v.Load(j, first_d + d * V::kLanes);
      for (int i = 0; i < kQ; ++i) {
        const F weight = V::Set1(tile.p[i * kKeys + j]);
        for (int d = 0; d < kD; ++d) sum[i][d] = V::MulAdd(weight, row[d], sum[i][d]);
      }
    }
    for (int i = 0; i < kQ; ++i) {
      for (int d = 0; d < kD; ++d) {
        V::Store(values + i * tile.padded + d * V::kLanes, sum[i][d]);
      }
    }
  }

  // Takes keys [begin, end) of the block into the state of `count` queries from `first` on.
  template <int kQ, typename Values>
  static void Update(const Tile& tile, const Values& v, int first, int count, int begin, int end,
                     float scale) {
    for (; count >= kQ; first += kQ, count -= kQ) {
      Scores<kQ>(tile, tile.q + first * tile.padded, scale);
      float correction[kQ];
      for (int i = 0; i < kQ; ++i) {
        correction[i] = Softmax(tile.p + i * kKeys, begin, end, tile.running + first + i);
      }
      float* values = tile.values + first * tile.padded;
      int d = 0;
      for (; d + kVectors * V::kLanes <= tile.padded; d += kVectors * V::kLanes) {
        Accumulate<kQ, kVectors>(tile, v, d, begin, end, correction, values + d);
      }
      for (; d < tile.padded; d += V::kLanes) {
        Accumulate<kQ, 1>(tile, v, d, begin, end, correction, values + d);
      }
    }
    if constexpr (kQ > 1) Update<kQ / 2>(tile, v, first, count, begin, end, scale);
  }

  // The pool row of a token.
  static int64_t PoolRow(const AttentionTile& task, int token) {
    return static_cast<int64_t>(task.page_table[token / task.page_tokens]) * task.page_tokens +
           token % task.page_tokens;
  }

  // Asks for the key and the value of a token. What a step read of the cache, the weights have
  // driven out by the next one; and short pieces far apart are nothing that a processor foresees.
  static void ReadAhead(const AttentionTile& task, int token) {
    const int64_t row = PoolRow(task, token);
    for (size_t line = 0; line < task.head_bytes; line += 64) {
      __builtin_prefetch(task.k + row * task.k_row_bytes + line, 0, 2);
      __builtin_prefetch(task.v + row * task.v_row_bytes + line, 0, 2);
    }
  }

  // Keys of tokens [from, last] of the block; asks for those of the next one. What stands in the
  // place of other keys is left from earlier ones.
  static void GatherKeys(const AttentionTile& task, const Tile& tile, int block, int from,
                         int last) {
    for (int key = 0; key < kKeys && block + key <= last; key += V::kLanes) {
      for (int i = 0; i < V::kLanes; ++i) {
        const int token = block + key + i;
        if (token < from || token > last) continue;
        if (token + kKeys <= last) ReadAhead(task, token + kKeys);
        GatherRow(task, task.k + PoolRow(task, token) * task.k_row_bytes,
                  tile.staging + i * tile.padded);
      }
      for (int d = 0; d < tile.padded; d += V::kLanes) {
        V::Transpose(tile.staging + d, tile.padded, tile.k + d * kKeys + key, kKeys);
      }
    }
  }

  // Takes the block into the state of all rows that see it.
  template <typename Values>
  static void UpdateRows(const AttentionTile& task, const Tile& tile, const Values& v, int block) {
    for (int r = 0; r < task.rows;) {
      // Neighbouring rows that see the same part of the block are updated together.
      const KeyRange range = Visible(task, task.position[r], block);
      int next = r + 1;
      while (next < task.rows && Visible(task, task.position[next], block) == range) ++next;
      if (range.begin < range.end) {
        Update<kQueries>(tile, v, r * task.group, (next - r) * task.group, range.begin, range.end,
                         task.scale);
      }
      r = next;
    }
  }

  static const std::byte* Value(const AttentionTile& task, int token) {
    return task.v + PoolRow(task, token) * task.v_row_bytes;
  }

  template <TensorType kType>
  static void UpdateStored(const AttentionTile& task, const Tile& tile, int block, int from,
                           int last) {
    StoredValues<kType> v;
    for (int token = from; token <= last && token < block + kKeys; ++token) {
      v.row[token - block] = Value(task, token);
    }
    UpdateRows(task, tile, v, block);
  }

  static void Run(const AttentionTile& task) {
    const int queries = task.rows * task.group;
    const Tile tile(task.scratch, task.head_dim, queries);
    int last = 0;
    int first = INT32_MAX;
    for (int r = 0; r < task.rows; ++r) {
      const int position = task.position[r];
      last = position > last ? position : last;
      const int begin = FirstKey(task, position);
      first = begin < first ? begin : first;
    }
    const int first_block = first / kKeys * kKeys;
    for (int token = first; token <= last && token < first_block + kKeys; ++token) {
      ReadAhead(task, token);
    }
    // Padding must be zero, and no uninitialised bits may enter the arithmetic.
    std::memset(task.scratch, 0, ScratchBytes(task.head_dim, queries));
    for (int r = 0; r < task.rows; ++r) {
      for (int h = 0; h < task.group; ++h) {
        const int i = r * task.group + h;
        std::memcpy(tile.q + i * tile.padded, task.q[r] + h * task.head_dim,
                    task.head_dim * sizeof(float));
        tile.running[i] = {-INFINITY, 0};
      }
    }

    const bool few = queries <= kFewQueries && tile.padded == task.head_dim;
    for (int block = first_block; block <= last; block += kKeys) {
      const int from = block < first ? first : block;
      GatherKeys(task, tile, block, from, last);
      if (few && task.kv_type == TensorType::kF16) {
        UpdateStored<TensorType::kF16>(task, tile, block, from, last);
      } else if (few && task.kv_type == TensorType::kBF16) {
        UpdateStored<TensorType::kBF16>(task, tile, block, from, last);
      } else if (few && task.kv_type == TensorType::kQ8_0) {
        UpdateStored<TensorType::kQ8_0>(task, tile, block, from, last);
      } else {
        for (int token = from; token <= last && token < block + kKeys; ++token) {
          GatherRow(task, Value(task, token), tile.v + (token - block) * tile.padded);
        }
        UpdateRows(task, tile, GatheredValues{tile.v, tile.padded}, block);
      }
    }

    for (int r = 0; r < task.rows; ++r) {
      for (int h = 0; h < task.group; ++h) {
        const int i = r * task.group + h;
        float* out = task.out[r] + h * task.head_dim;
        for (int d = 0; d < task.head_dim; ++d) {
          out[d] = tile.values[i * tile.padded + d] / tile.running[i].sum;
        }
      }
    }
  }

  // The keys of a block that a query at `position` sees, relative to the block; empty if none.
  struct KeyRange {
    int begin;
    int end;
    bool operator==(const KeyRange&) const = default;
  };
  static KeyRange Visible(const AttentionTile& task, int position, int block) {
    const int lowest = FirstKey(task, position);
    return {lowest > block ? lowest - block : 0,
            position - block + 1 < kKeys ? position - block + 1 : kKeys};
  }

  static int FirstKey(const AttentionTile& task, int position) {
    return task.window > 0 && position >= task.window ? position - task.window + 1 : 0;
  }
};

}  // namespace strata::compute
