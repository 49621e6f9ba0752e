// Products of quantised weights with int8 activations.
//
// What is computed, for one activation row and one output, block after block in ascending order:
//   256 weights:  y = fma(d_w d_x, sum_g s[g] sum_i c_i q_i, y)
//                 y = fma(-(dmin d_x), sum_g m[g] sum_i q_i, y)       if the format has minima
//    32 weights:  y = fma(d_w d_x, sum_i c_i q_i, y),  y = fma(m d_x, sum_i q_i, y)
// (or 16, if the format has a float scale for every 16). The sums over integers are exact, so only
// the float operations written here round, and their order is fixed. Any way to arrange the integer
// part gives the same bits; which one runs depends on the format and on the number of rows.
//
// FewRows (product256.h, product32.h): eight outputs and up to four rows at a time, lanes along the
// inputs, lanes summed once a block. Weights are read along their rows, in the order of memory,
// because memory is the limit when one stream decodes; only then are the terms of eight outputs
// turned into lanes. Blocks of 16 bytes are turned into lanes at once (lane_product.h).
//
// Panels: kLanes outputs side by side, one a lane. A block of the weights is decoded to bytes in
// the order [inputs / 4][output][4], and then used for every row: the activation's four bytes are
// broadcast. For prompts, where arithmetic is the limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "services/compute/cpu/activations.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/lanes8.h"
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

// Asks for the next `bytes` of a weight row. Panels read many rows a little at a time, which the
// processor's own prefetching does not follow.
inline void Prefetch(const void* p, size_t bytes) {
  for (size_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(static_cast<const char*>(p) + line, _MM_HINT_T0);
  }
}

// The same into the second level: for more than the first should hold.
inline void PrefetchFar(const void* p, size_t bytes) {
  for (size_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(static_cast<const char*>(p) + line, _MM_HINT_T1);
  }
}

// Eight weight rows; those past the end of the tile repeat the last one, their results are unused.
struct EightRows {
  const std::byte* row[8];
  EightRows(const ProductTile& tile, int first) {
    for (int r = 0; r < 8; ++r) {
      const int o = first + r < tile.outputs ? first + r : tile.outputs - 1;
      row[r] = tile.weights + o * tile.weight_row_bytes;
    }
    four_rows_ahead_ = 4 * tile.weight_row_bytes;
    while (four_rows_ahead_ < kMemoryLatency) four_rows_ahead_ += 4 * tile.weight_row_bytes;
  }
  // The r-th row's block number `block`.
  template <typename Block>
  const Block& At(int r, int64_t block) const {
    return *reinterpret_cast<const Block*>(row[r] + block * sizeof(Block));
  }
  // The weights stream past once. If rows are read one after another: asks for what memory holds
  // some way after `count` blocks.
  template <typename Block>
  void Ahead(int r, int64_t block, int count) const {
    Prefetch(row[r] + block * sizeof(Block) + kMemoryLatency, count * sizeof(Block));
  }
  // If four rows are read in turn, which the processor does not foresee: the same block of the row
  // that takes this one's place.
  template <typename Block>
  void FourRowsAhead(int r, int64_t block) const {
    Prefetch(row[r] + block * sizeof(Block) + four_rows_ahead_, sizeof(Block));
  }

 private:
  static constexpr size_t kMemoryLatency = 2048;  // bytes that are read while memory answers
  size_t four_rows_ahead_;
};

// Calls fn<kRows>(first) for pieces of the rows: as many as the instruction set shares, then fewer.
template <int kRows, typename Fn>
void ForRowPieces(int rows, int first, Fn fn) {
  for (; first + kRows <= rows; first += kRows) fn.template operator()<kRows>(first);
  if constexpr (kRows > 1) ForRowPieces<kRows / 2>(rows, first, fn);
}

// The pair sums of 32 codes and 32 activations, in sixteen 16-bit lanes. `size` is |codes|.
template <typename Format>
__m256i PairDot32(__m256i codes, __m256i size, __m256i q) {
  if constexpr (Format::kSigned) {
    return _mm256_maddubs_epi16(size, _mm256_sign_epi8(q, codes));
  } else {
    return _mm256_maddubs_epi16(codes, q);
  }
}
template <typename Format>
__m256i SizeOf(__m256i codes) {
  return Format::kSigned ? _mm256_abs_epi8(codes) : codes;
}

}  // namespace
}  // namespace strata::compute
