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
// Panels (panel256.h): one or two vectors of outputs side by side, one a lane. A block of the
// weights is decoded to bytes in the order [inputs / 4][output][4], and then used for every row:
// the activation's four bytes are broadcast. For prompts, where arithmetic is the limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "services/compute/cpu/activations.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/lanes8.h"
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

// Asks for the next `bytes` of a weight row. The empty statement keeps GCC 12 from taking a
// function that only asks ahead for one without effect, calls of which it would leave out.
inline void Prefetch(const void* p, size_t bytes) {
  asm volatile("");
  for (size_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(static_cast<const char*>(p) + line, _MM_HINT_T0);
  }
}

// The same into the second level: for more than the first should hold.
inline void PrefetchFar(const void* p, size_t bytes) {
  asm volatile("");
  for (size_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(static_cast<const char*>(p) + line, _MM_HINT_T1);
  }
}

// Eight weight rows; those past the end of the tile repeat the last one, their results are unused.
struct EightRows {
  const std::byte* row[8];
  EightRows(const ProductTile& tile, int first) : row_bytes_(tile.weight_row_bytes) {
    for (int r = 0; r < 8; ++r) {
      const int o = first + r < tile.outputs ? first + r : tile.outputs - 1;
      row[r] = tile.weights + o * tile.weight_row_bytes;
    }
  }
  // The r-th row's block number `block`.
  template <typename Block>
  const Block& At(int r, int64_t block) const {
    return *reinterpret_cast<const Block*>(row[r] + block * sizeof(Block));
  }

 private:
  friend class ReadAhead;
  size_t row_bytes_;
};

// The weights of a few rows' product stream past once, in pieces: piece after piece of the eight
// rows, each piece from all rows in turn. The processor foresees this only while a piece is a whole
// row. This asks for the part that will be read kMemoryLatency bytes later.
class ReadAhead {
 public:
  // The piece of [begin, end) bytes of rows of `size` bytes; the rows take turns in groups of
  // `turn`.
  ReadAhead(const EightRows& rows, size_t begin, size_t end, size_t size, int turn) {
    int ahead = turn;
    while (ahead < 8 && ahead * (end - begin) < kMemoryLatency) ahead += turn;
    for (int r = 0; r < 8; ++r) {
      if (r + ahead < 8) {
        next_[r] = rows.row[r + ahead] + begin;
      } else {  // the next piece, or the first one of the eight rows that follow
        const std::byte* row = rows.row[r + ahead - 8];
        next_[r] = end < size ? row + end : row + 8 * rows.row_bytes_;
      }
    }
  }
  // When `bytes` of row r are read, `offset` from the begin of the piece.
  void operator()(int r, size_t offset, size_t bytes) const { Prefetch(next_[r] + offset, bytes); }

 private:
  static constexpr size_t kMemoryLatency = 2048;
  const std::byte* next_[8];
};

// Panels read many rows a little at a time, which the processor's own prefetching does not follow.
// This asks for the panel after the next one, into the second level: the first one is full with
// the panel at hand and the activations. The requests are spread over the work on a panel, because
// the processor waits when more of them are under way than it has buffers for.
class PanelReadAhead {
 public:
  // Panels of `lanes` rows and `bytes` of each row, apart or interleaved by eight.
  PanelReadAhead(const ProductTile& tile, int lanes, size_t bytes, bool interleaved = false)
      : row_bytes_(tile.weight_row_bytes),
        bytes_(bytes),
        lanes_(lanes),
        interleaved_(interleaved) {}

  // The panel at hand: rows from `row`, from byte `begin` of each.
  void Begin(const std::byte* row, size_t begin) {
    size_t at = begin + 2 * bytes_;
    for (; at >= row_bytes_; at -= (row_bytes_ + bytes_ - 1) / bytes_ * bytes_) {
      row += static_cast<size_t>(lanes_) * row_bytes_;
    }
    next_ = row + (interleaved_ ? 8 * at : at);
    size_ = row_bytes_ - at < bytes_ ? row_bytes_ - at : bytes_;
    asked_ = 0;
  }
  // Before the work on piece `first` .. `first + count` of `all` activation rows.
  void operator()(int first, int count, int all) {
    for (const int until = lanes_ * (first + count) / all; asked_ < until; ++asked_) {
      PrefetchFar(next_, size_);
      PrefetchFar(next_ + size_ - 1, 1);  // the last line, if `size_` does not reach it in steps
      // Interleaved, the eight rows' bytes of the panel follow one another.
      next_ += !interleaved_ ? row_bytes_ : asked_ % 8 == 7 ? 8 * row_bytes_ - 7 * size_ : size_;
    }
  }

 private:
  size_t row_bytes_;
  size_t bytes_;
  int lanes_;
  bool interleaved_;
  const std::byte* next_ = nullptr;
  size_t size_ = 0;
  int asked_ = 0;
};

// Calls fn<kRows>(first) for pieces of the rows: as many as the instruction set shares, then one of
// what is left.
template <int kRows, typename Fn>
void ForRowPieces(int rows, int first, Fn fn) {
  for (; first + kRows <= rows; first += kRows) {
    if (kRows == 3 && rows - first == 4) break;  // two and two rather than three and one
    fn.template operator()<kRows>(first);
  }
  if constexpr (kRows > 1) ForRowPieces<kRows - 1>(rows, first, fn);
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

// The activation rows of a tile, of form Int8Row32 or Int8Row256.
template <typename Row>
struct TileRows {
  Row row[kMostTileRows];
  explicit TileRows(const ProductTile& tile) {
    for (int r = 0; r < tile.row_count; ++r) row[r] = Row::At(tile.rows[r], tile.inputs);
  }
};

// Panels add to their results: clears those of kLanes outputs from number o.
template <int kLanes>
void ClearOutputs(const ProductTile& tile, int o) {
  for (int r = 0; r < tile.row_count; ++r) {
    std::memset(tile.out + r * tile.out_stride + o, 0, kLanes * sizeof(float));
  }
}

// All of a tile of few activation rows: kOutputs outputs at a time, as Rows.
template <typename Product, typename Rows, int kOutputs>
void RunFewRows(const ProductTile& tile) {
  for (int o = 0; o < tile.outputs; o += kOutputs) {
    const Rows rows(tile, o);
    ForRowPieces<4>(tile.row_count, 0,
                    [&]<int kRows>(int r) { Product::template FewRows<kRows>(rows, tile, o, r); });
  }
}

}  // namespace
}  // namespace strata::compute
