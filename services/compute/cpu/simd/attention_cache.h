// How attention reads the paged cache of keys and values (AttentionTile, kernels.h).
#pragma once

#include <cstdint>
#include <cstring>

#include "common/quant/blocks.h"
#include "services/compute/cpu/kernels.h"

namespace strata::compute {

template <typename V>
struct AttentionCache {
  using F = typename V::F;

  // Where `count` tokens from `first` on lie: their rows of the pools.
  template <int kTokens>
  struct PoolRows {
    int64_t row[kTokens];

    PoolRows(const AttentionTile& task, int first, int count) {
      int page = first / task.page_tokens;
      int slot = first % task.page_tokens;
      for (int i = 0; i < count; ++i) {
        row[i] = static_cast<int64_t>(task.page_table[page]) * task.page_tokens + slot;
        if (++slot == task.page_tokens) {
          slot = 0;
          ++page;
        }
      }
    }
    int64_t operator[](int token) const { return row[token]; }
  };

  static const std::byte* Key(const AttentionTile& task, int64_t row) {
    return task.k + row * task.k_row_bytes;
  }
  static const std::byte* Value(const AttentionTile& task, int64_t row) {
    return task.v + row * task.v_row_bytes;
  }

  // Asks for a stored head. What a step read of the cache, the weights have driven out by the next
  // one; and short pieces far apart are nothing that a processor foresees.
  static void ReadAhead(const AttentionTile& task, const std::byte* head) {
    for (size_t line = 0; line < task.head_bytes; line += 64) __builtin_prefetch(head + line);
  }

  // Where value d of a stored head lies.
  template <TensorType kType>
  static const std::byte* At(const std::byte* head, int d) {
    if constexpr (kType == TensorType::kQ8_0) return head + d / 32 * sizeof(quant::BlockQ8_0);
    return head + d * (kType == TensorType::kF32 ? 4 : 2);
  }

  // kLanes values from number d on of a stored head; d is a multiple of kLanes.
  template <TensorType kType>
  static F Load(const std::byte* row, int d) {
    if constexpr (kType == TensorType::kQ8_0) {
      const auto& block = reinterpret_cast<const quant::BlockQ8_0*>(row)[d / 32];
      // The scale is converted together with the codes behind it, which are as good as any bits.
      static_assert(V::kLanes * sizeof(uint16_t) <= sizeof(block));
      return V::Mul(V::Set1(V::First(V::LoadHalf(&block.d))), V::LoadBytes(block.qs + d % 32));
    } else if constexpr (kType == TensorType::kBF16) {
      return V::LoadBf16(reinterpret_cast<const uint16_t*>(row) + d);
    } else if constexpr (kType == TensorType::kF16) {
      return V::LoadHalf(reinterpret_cast<const uint16_t*>(row) + d);
    } else {
      return V::Load(reinterpret_cast<const float*>(row) + d);
    }
  }

  // A stored row of n values as floats.
  template <TensorType kType>
  static void Gather(int n, const std::byte* row, float* out) {
    int i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) V::Store(out + i, Load<kType>(row, i));
    if constexpr (kType != TensorType::kQ8_0) {  // whose heads are whole blocks
      if (i == n) return;
      constexpr int kBytes = kType == TensorType::kF32 ? 4 : 2;
      std::byte rest[V::kLanes * kBytes] = {};
      std::memcpy(rest, row + i * kBytes, (n - i) * kBytes);
      V::StorePartial(out + i, Load<kType>(rest, 0), n - i);
    }
  }
};

}  // namespace strata::compute
