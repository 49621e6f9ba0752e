// A block of each of kLanes weight rows that lie interleaved by eight
// (common/quant/weight_layout.h): its fields as vectors with a row in each lane.
#pragma once

#include <cstddef>
#include <cstdint>

#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/int8_product.h"
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

// Offsets are those of the fields in `Block`.
template <typename Isa, typename Block>
struct Rows8Block {
  using I = typename Isa::I;
  using F = typename Isa::F;
  static constexpr int kParts = Isa::kLanes / 8;  // of eight rows
  static constexpr size_t kOdd = sizeof(Block) % 4;
  const std::byte* at[kParts];

  // The four bytes from `offset`.
  I Word(size_t offset) const { return Isa::LoadParts(at, 8 * offset); }
  void FourWords(size_t offset, I* words) const {
    for (int j = 0; j < 4; ++j) words[j] = Word(offset + 4 * j);
  }
  // Half-precision fields: two neighbours that share a word, and one by itself.
  void HalfPair(size_t offset, F* low, F* high) const {
    __m256 parts[2][kParts];
    for (int i = 0; i < kParts; ++i) {
      const __m256i words = Bytes::Load(at[i] + 8 * offset);
      const __m256i halves = _mm256_permute4x64_epi64(
          _mm256_packus_epi32(_mm256_and_si256(words, _mm256_set1_epi32(0xffff)),
                              _mm256_srli_epi32(words, 16)),
          0xd8);
      parts[0][i] = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
      parts[1][i] = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
    }
    *low = Isa::Join(parts[0]);
    *high = Isa::Join(parts[1]);
  }
  F Halves(size_t offset) const {
    if constexpr (kOdd == 2) {
      __m256 parts[kParts];
      for (int i = 0; i < kParts; ++i) {
        parts[i] = _mm256_cvtph_ps(Bytes::Load16(at[i] + 8 * offset));
      }
      return Isa::Join(parts);
    } else {
      F low;
      F high;
      HalfPair(offset / 4 * 4, &low, &high);
      return offset % 4 == 0 ? low : high;
    }
  }
  // Of rows `first` to `first + 7`, the four bytes from `offset`, and the byte there as a word.
  __m256i EightWords(int first, size_t offset) const {
    return Bytes::Load(at[first / 8] + 8 * offset);
  }
  __m256i EightBytes(int first, size_t offset) const {
    const std::byte* rows = at[first / 8];
    if constexpr (kOdd == 1) {
      return _mm256_cvtepu8_epi32(
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(rows + 8 * offset)));
    } else {
      const __m256i words = Bytes::Load(rows + 8 * (offset / 4 * 4));
      return _mm256_and_si256(_mm256_srli_epi32(words, static_cast<int>(offset % 4 * 8)),
                              _mm256_set1_epi32(255));
    }
  }
};

// kLanes interleaved rows of a tile; eight past its end repeat the last ones.
template <typename Isa>
struct InterleavedRows {
  static constexpr bool kInterleaved = true;
  static constexpr int kParts = Isa::kLanes / 8;
  const std::byte* part[kParts];
  InterleavedRows(const ProductTile& tile, int first) {
    for (int i = 0; i < kParts; ++i) {
      const int o = first + 8 * i < tile.outputs ? first + 8 * i : first;
      part[i] = tile.weights + o * tile.weight_row_bytes;
    }
  }
  template <typename Block>
  Rows8Block<Isa, Block> At(int64_t block) const {
    Rows8Block<Isa, Block> out;
    for (int i = 0; i < kParts; ++i) out.at[i] = part[i] + block * 8 * sizeof(Block);
    return out;
  }
  // Asks for what lies kAhead behind part `piece` of `pieces` of block `b`; eight rows are read as
  // one stream. In pieces, as the processor has few buffers for requests.
  template <typename Block>
  void ReadAhead(int64_t b, int piece = 0, int pieces = 1) const {
    static_assert(kParts == 1);
    const size_t bytes = 8 * sizeof(Block) / pieces;
    Prefetch(part[0] + 8 * sizeof(Block) * b + bytes * piece + kAhead, bytes);
  }
  // What memory delivers in its latency; 2 to 8 KiB make no difference.
  static constexpr size_t kAhead = 4096;
};

}  // namespace
}  // namespace strata::compute
