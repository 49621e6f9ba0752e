// Softmax attention by tiles of keys with a running maximum ("online softmax").
//
// Keys are visited in blocks of kKeys tokens aligned to position 0, in ascending order, whatever
// the page size and whichever rows share the tile; to a query row, keys that it does not see are
// keys of weight zero. So the order of every sum is a function of the row's own position and window
// alone. A block of K and V is gathered (and converted to float) once for all query rows and heads
// of the tile; for few of them, V is converted as it is used instead: what is written has to fit
// the first-level cache.
//
// For a query with running maximum m, sum l and weighted values a, a block with scores s_j does
//   m' = max(m, max_j s_j),  c = exp(m - m'),  p_j = exp(s_j - m'),
//   l = l c + sum_j p_j,     a = a c + sum_j p_j v_j,     and finally out = a / l.
// Queries are multiplied by log2 e beforehand, so that exp is a power of two.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>

#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/attention_cache.h"
#include "services/compute/cpu/simd/attention_scores.h"
#include "services/compute/cpu/simd/attention_values.h"

namespace strata::compute {

template <typename V>
struct AttentionKernel {
  using F = typename V::F;
  using Cache = AttentionCache<V>;
  using Values = AttentionValues<V>;
  static constexpr int kKeys = 128;
  static constexpr int kPad = 16;  // head rows are padded with zeros to a multiple of this
  static constexpr int kGroup = AttentionScores<V>::kKeys;  // keys gathered at once

  static int RoundUp(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

  // Where things lie in the scratch memory; a column is a query.
  struct Tile {
    int padded;   // head_dim
    int columns;  // queries, and columns of zeros up to whole vectors
    float* k;     // [kGroup][padded]
    float* v;     // [kKeys][padded]
    float* p;     // [kKeys][columns] scores, then weights
    float* q;     // [padded][columns], with the scale and log2 e
    float* max;   // [columns], as sum and correction
    float* sum;
    float* correction;
    float* values;  // [columns][padded]
    float* end;

    Tile(std::byte* scratch, int head_dim, int queries)
        : padded(RoundUp(head_dim, kPad)), columns(queries) {
      k = reinterpret_cast<float*>(scratch);
      v = k + kGroup * padded;
      p = v + kKeys * padded;
      q = p + kKeys * columns;
      max = q + padded * columns;
      sum = max + columns;
      correction = sum + columns;
      values = correction + columns;
      end = values + columns * padded;
    }
  };

  static size_t ScratchBytes(int head_dim, int queries) {
    const Tile tile(nullptr, head_dim, RoundUp(queries, V::kLanes));
    return reinterpret_cast<uintptr_t>(tile.end);
  }

  static void Run(const AttentionTile& task) {
    switch (task.kv_type) {
      case TensorType::kF32:
        return RunType<TensorType::kF32>(task);
      case TensorType::kBF16:
        return RunType<TensorType::kBF16>(task);
      case TensorType::kQ8_0:
        return RunType<TensorType::kQ8_0>(task);
      default:
        return RunType<TensorType::kF16>(task);
    }
  }

 private:
  // Keys [begin, end) of a block; empty if end <= begin.
  struct KeyRange {
    int begin;
    int end;
    bool operator==(const KeyRange&) const = default;
  };
  // Those that a query at `position` sees.
  static KeyRange Visible(const AttentionTile& task, int position, int block) {
    return {std::max(FirstKey(task, position) - block, 0), std::min(position - block + 1, kKeys)};
  }
  static int FirstKey(const AttentionTile& task, int position) {
    return task.window > 0 ? std::max(position - task.window + 1, 0) : 0;
  }

  template <TensorType kType>
  static void RunType(const AttentionTile& task) {
    // Few queries are scored by shorter vectors, if they fill no longer ones.
    if (task.rows * task.group <= V::Short::kLanes) {
      RunBlocks<kType, typename V::Short>(task);
    } else {
      RunBlocks<kType, V>(task);
    }
  }

  // Tokens first + begin .. first + end - 1, and where they lie.
  using PoolRows = typename Cache::template PoolRows<kKeys>;
  struct Block {
    int first;
    int begin;
    int end;  // not above begin: there is none
    PoolRows rows;

    // Of the tokens from first_token to end_token.
    Block(const AttentionTile& task, int block, int first_token, int end_token)
        : first(block),
          begin(std::max(first_token - block, 0)),
          end(std::min(end_token - block, kKeys)),
          rows(task, block, end) {}
  };

  // Up to this many queries convert values themselves.
  static constexpr int kFewQueries = 4 * Values::kQueries;

  template <TensorType kType, typename W>
  static void RunBlocks(const AttentionTile& task) {
    const int queries = task.rows * task.group;
    const Tile tile(task.scratch, task.head_dim, RoundUp(queries, W::kLanes));
    const bool few = queries <= kFewQueries && tile.padded == task.head_dim;
    int first = INT32_MAX;
    int end = 0;
    for (int r = 0; r < task.rows; ++r) {
      first = std::min(first, FirstKey(task, task.position[r]));
      end = std::max(end, task.position[r] + 1);
    }
    Block next(task, first / kKeys * kKeys, first, end);
    for (int i = next.begin; i < next.end; ++i) {
      Cache::ReadAhead(task, Cache::Key(task, next.rows[i]));
      Cache::ReadAhead(task, Cache::Value(task, next.rows[i]));
    }
    Begin<W>(task, tile);
    while (next.first < end) {
      const Block block = next;
      next = Block(task, block.first + kKeys, first, end);
      Weigh<kType, W>(task, tile, block, next, !few);
      if (few) {
        typename Values::template Stored<kType, kKeys> v;
        for (int i = block.begin; i < block.end; ++i) {
          v.row[i] = Cache::Value(task, block.rows[i]);
          // Of the last block there is nothing to ask for but itself.
          v.ahead[i] = i < next.end ? Cache::Value(task, next.rows[i]) : v.row[i];
        }
        Accumulate(task, tile, v, block.first);
      } else {
        for (int i = block.begin; i < block.end; ++i) {
          Cache::template Gather<kType>(task.head_dim, Cache::Value(task, block.rows[i]),
                                        tile.v + i * tile.padded);
        }
        Accumulate(task, tile, typename Values::Gathered{tile.v, tile.padded}, block.first);
      }
    }
    Finish(task, tile);
  }

  // Padding must be zero, and no uninitialised bits may enter the arithmetic.
  template <typename W>
  static void Begin(const AttentionTile& task, const Tile& tile) {
    Fill(tile.k, tile.v, 0);
    if (tile.padded != task.head_dim) Fill(tile.v, tile.p, 0);
    Fill(tile.max, tile.sum, std::numeric_limits<float>::lowest());
    Fill(tile.sum, tile.end, 0);
    const float factor = task.scale * std::numbers::log2e_v<float>;
    for (int i = 0; i < task.rows * task.group; ++i) {
      const float* q = task.q[i / task.group] + i % task.group * task.head_dim;
      Scale(q, factor, task.head_dim, tile.values + i * tile.padded);
    }
    for (int i = 0; i < tile.columns; i += W::kLanes) {
      for (int d = 0; d < tile.padded; d += W::kLanes) {
        W::Transpose(tile.values + i * tile.padded + d, tile.padded, tile.q + d * tile.columns + i,
                     tile.columns);
      }
    }
    Fill(tile.values, tile.end, 0);
  }
  static void Fill(float* begin, float* end, float value) {
    const F all = V::Set1(value);
    for (; begin + V::kLanes <= end; begin += V::kLanes) V::Store(begin, all);
    if (begin < end) V::StorePartial(begin, all, end - begin);
  }
  static void Scale(const float* x, float factor, int n, float* out) {
    const F factors = V::Set1(factor);
    int i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) V::Store(out + i, V::Mul(V::Load(x + i), factors));
    if (i < n) V::StorePartial(out + i, V::Mul(V::LoadPartial(x + i, n - i), factors), n - i);
  }

  // The weights of the block's keys for all queries; asks for those of the next block.
  template <TensorType kType, typename W>
  static void Weigh(const AttentionTile& task, const Tile& tile, const Block& block,
                    const Block& next, bool asks_for_values) {
    const int begin = block.begin / kGroup * kGroup;
    const int end = RoundUp(block.end, kGroup);
    for (int group = begin; group < end; group += kGroup) {
      for (int i = group; i < group + kGroup; ++i) {
        if (i < next.end) Cache::ReadAhead(task, Cache::Key(task, next.rows[i]));
        if (i < block.begin || i >= block.end) continue;
        Cache::template Gather<kType>(task.head_dim, Cache::Key(task, block.rows[i]),
                                      tile.k + (i - group) * tile.padded);
      }
      AttentionScores<W>::Score(tile.k, tile.padded, tile.q, tile.columns, task.head_dim,
                                tile.p + group * tile.columns);
      // Not with the keys: more at once than a processor has room for would stop it.
      for (int i = group; asks_for_values && i < std::min(group + kGroup, next.end); ++i) {
        Cache::ReadAhead(task, Cache::Value(task, next.rows[i]));
      }
    }
    for (int r = 0; r < task.rows; ++r) {
      const KeyRange seen = Visible(task, task.position[r], block.first);
      Hide(task, tile, r, begin, std::min(seen.begin, end));
      Hide(task, tile, r, std::max(seen.end, begin), end);
    }
    AttentionScores<W>::Softmax(tile.p + begin * tile.columns, end - begin, tile.columns, tile.max,
                                tile.sum, tile.correction);
  }
  // Keys that a row does not see get no weight.
  static void Hide(const AttentionTile& task, const Tile& tile, int row, int begin, int end) {
    for (int j = begin; j < end; ++j) {
      float* p = tile.p + j * tile.columns + row * task.group;
      Fill(p, p + task.group, -std::numeric_limits<float>::infinity());
    }
  }

  // Adds the block's values to the sums of all rows that see it.
  template <typename BlockValues>
  static void Accumulate(const AttentionTile& task, const Tile& tile, const BlockValues& v,
                         int block) {
    for (int r = 0; r < task.rows;) {
      // Neighbouring rows that see the same part of the block are updated together.
      const KeyRange seen = Visible(task, task.position[r], block);
      int next = r + 1;
      while (next < task.rows && Visible(task, task.position[next], block) == seen) ++next;
      if (seen.begin < seen.end) {
        Values::Accumulate({tile.p, tile.columns, tile.correction}, v, r * task.group,
                           (next - r) * task.group, seen.begin, seen.end, tile.padded, tile.values);
      }
      r = next;
    }
  }

  static void Finish(const AttentionTile& task, const Tile& tile) {
    for (int i = 0; i < task.rows * task.group; ++i) {
      float* out = task.out[i / task.group] + i % task.group * task.head_dim;
      Scale(tile.values + i * tile.padded, 1 / tile.sum[i], task.head_dim, out);
    }
  }
};

}  // namespace strata::compute
