// The i-quants of two and three bits with AVX-512 VBMI: the blocks of four weight rows are decoded
// at a time, whole, by the lookups of vbmi_lookup.h. The results are those of codebook.h; only the
// way differs.
//
// A decoded block is 4 vectors of 64 bytes in the order of the weights. Magnitudes and signs stay
// apart where the format stores them apart: for a single activation row it is cheaper to negate the
// activations under a mask, which the dot instruction needs signed anyway.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "common/quant/blocks.h"
#include "common/quant/codebooks.h"
#include "services/compute/cpu/activations.h"
#include "services/compute/cpu/simd/codebook_formats.h"
#include "services/compute/cpu/simd/lanes8.h"
#include "services/compute/cpu/simd/vbmi_lookup.h"

namespace strata::compute {
namespace {

inline constexpr int kBlocksAtOnce = 4;

// Weight 64 i + j of block p is negative if bit j of negative[p][i] is set.
struct SignBits {
  uint64_t negative[kBlocksAtOnce][4];
};

// The sign bytes of the 7-bit sign indices: the eighth sign makes the number of signs even.
struct EvenSignTable {
  alignas(64) uint8_t byte[128];
  constexpr EvenSignTable() : byte() {
    for (int i = 0; i < 128; ++i) {
      int parity = 0;
      for (int bit = 0; bit < 7; ++bit) parity ^= i >> bit & 1;
      byte[i] = static_cast<uint8_t>(i | parity << 7);
    }
  }
};

struct Signs {
  static constexpr EvenSignTable kTable = {};

  // From 64 indices (bit 7 is ignored), one for eight weights.
  static __m512i EvenBytes(__m512i indices) {
    return _mm512_permutex2var_epi8(Vbmi::Load(kTable.byte), indices, Vbmi::Load(kTable.byte + 64));
  }
  // Of two blocks, from number `first`.
  static void Even(__m512i indices, int first, SignBits* out) {
    const __m512i bytes = EvenBytes(indices);
    std::memcpy(out->negative[first], &bytes, sizeof(bytes));
  }
  // From sixteen 32-bit words with four sign indices each, from bit 0 up.
  static void FromWords(__m512i words, int first, SignBits* out) {
    Even(Vbmi::Fields(words, 0, 7, 14, 21, 32, 39, 46, 53), first, out);
  }
  static void Plain(const uint8_t* bytes, int block, SignBits* out) {
    std::memcpy(out->negative[block], bytes, sizeof(out->negative[block]));
  }
};

// Bytes of two blocks in one vector, those of the first block in its lower half.
struct TwoBlocks {
  // 32 bytes of each.
  static __m512i Halves(const void* a, const void* b) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(Bytes::Load(a)), Bytes::Load(b), 1);
  }
  // 16 bytes of each.
  static __m256i Quarters(const void* a, const void* b) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(Bytes::Load16(a)), Bytes::Load16(b), 1);
  }
  // Every even (odd) byte of 64 bytes of each.
  static __m512i EvenBytes(__m512i a, __m512i b) {
    return _mm512_permutex2var_epi8(a, EverySecond<0>(), b);
  }
  static __m512i OddBytes(__m512i a, __m512i b) {
    return _mm512_permutex2var_epi8(a, EverySecond<1>(), b);
  }
  template <int kFirst>
  static __m512i EverySecond() {
    struct Indices {
      alignas(64) uint8_t byte[64];
      constexpr Indices() : byte() {
        for (int i = 0; i < 64; ++i) byte[i] = static_cast<uint8_t>(2 * i + kFirst);
      }
    };
    static constexpr Indices kIndices;
    return Vbmi::Load(kIndices.byte);
  }
  // Every even (odd) doubleword of 64 bytes of each.
  static __m512i EvenWords(__m512i a, __m512i b) {
    return _mm512_permutex2var_epi32(
        a, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), b);
  }
  static __m512i OddWords(__m512i a, __m512i b) {
    return _mm512_permutex2var_epi32(
        a, _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31), b);
  }
};

// Indices into a codebook, for four blocks: entries of eight weights need two vectors, entries of
// four weights one for each block.
template <int kVectors>
struct Indices {
  __m512i low[kVectors];
  __mmask64 high[kVectors][Vbmi::kMostHigh];  // bit 8 + j; bit 7 is in `low`

  // The two bytes of the entries.
  template <int kHigh>
  void Lookup(const PackedGrid<256 << kHigh>& grid, __m512i (&first)[kVectors],
              __m512i (&second)[kVectors]) const {
    Vbmi::Lookup<kHigh>(grid.byte[0], low, high, first);
    Vbmi::Lookup<kHigh>(grid.byte[1], low, high, second);
  }
};

// Codebooks of eight weights an entry: the bytes of the entries found, and the magnitudes of vector
// i of block p, which are made one vector at a time so that lookups and products mix.
struct EightWeights {
  static constexpr int kVectors = kBlocksAtOnce / 2;
  __m512i first[kVectors];
  __m512i second[kVectors];

  __m512i Code(const LevelTable& levels, int p, int i) const {
    return Vbmi::EightTwoBitFields(first[p / 2], second[p / 2], p % 2 * 4 + i, levels);
  }
};

// Codebooks of four weights an entry.
struct FourWeights {
  static constexpr int kVectors = kBlocksAtOnce;
  __m512i first[kVectors];
  __m512i second[kVectors];

  __m512i Code(const LevelTable& levels, int p, int i) const {
    return Vbmi::FourFourBitFields(first[p], second[p], i, levels);
  }
};

// The magnitudes 8, 25 and 43 of IQ2 as levels 0, 1, 2.
struct Iq2Levels {
  static constexpr LevelTable kTable = LevelTable::Of<2>({8, 25, 43, 0});
  static int Level(int value) { return (value - 8) / 17; }
};

struct WholeIQ2XXS {
  using Format = FormatIQ2XXS;
  using Block = Format::Block;
  using Entries = EightWeights;
  static constexpr const LevelTable& kLevels = Iq2Levels::kTable;
  static const PackedGrid<256>& Grid() {
    static const auto grid = PackedGrid<256>::Pack<2>(quant::kIq2XxsGrid, &Iq2Levels::Level);
    return grid;
  }
  [[gnu::always_inline]] static void Find(const Block* const* blocks, Entries* found,
                                          SignBits* out) {
    Indices<2> index;
    for (int v = 0; v < 2; ++v) {
      // Eight times four indices, four sign indices and a scale.
      const __m512i a = Vbmi::Load(blocks[2 * v]->qs);
      const __m512i b = Vbmi::Load(blocks[2 * v + 1]->qs);
      index.low[v] = TwoBlocks::EvenWords(a, b);
      Signs::FromWords(TwoBlocks::OddWords(a, b), 2 * v, out);
    }
    index.template Lookup<0>(Grid(), found->first, found->second);
  }
};

struct WholeIQ2XS {
  using Format = FormatIQ2XS;
  using Block = Format::Block;
  using Entries = EightWeights;
  static constexpr const LevelTable& kLevels = Iq2Levels::kTable;
  static const PackedGrid<512>& Grid() {
    static const auto grid = PackedGrid<512>::Pack<2>(quant::kIq2XsGrid, &Iq2Levels::Level);
    return grid;
  }
  [[gnu::always_inline]] static void Find(const Block* const* blocks, Entries* found,
                                          SignBits* out) {
    Indices<2> index;
    for (int v = 0; v < 2; ++v) {
      const __m512i a = Vbmi::Load(blocks[2 * v]->qs);
      const __m512i b = Vbmi::Load(blocks[2 * v + 1]->qs);
      const __m512i rest = TwoBlocks::OddBytes(a, b);
      index.low[v] = TwoBlocks::EvenBytes(a, b);
      index.high[v][0] = _mm512_test_epi8_mask(rest, _mm512_set1_epi8(1));
      Signs::Even(_mm512_srli_epi16(rest, 1), 2 * v, out);
    }
    index.template Lookup<1>(Grid(), found->first, found->second);
  }
};

struct WholeIQ2S {
  using Format = FormatIQ2S;
  using Block = Format::Block;
  using Entries = EightWeights;
  static constexpr const LevelTable& kLevels = Iq2Levels::kTable;
  static const PackedGrid<1024>& Grid() {
    static const auto grid = PackedGrid<1024>::Pack<2>(quant::kIq2SGrid, &Iq2Levels::Level);
    return grid;
  }
  [[gnu::always_inline]] static void Find(const Block* const* blocks, Entries* found,
                                          SignBits* out) {
    Indices<2> index;
    for (int v = 0; v < 2; ++v) {
      const Block& a = *blocks[2 * v];
      const Block& b = *blocks[2 * v + 1];
      index.low[v] = TwoBlocks::Halves(a.qs, b.qs);
      // Two bits an index: 16 of the 64 bits of a block's qh for every quadword. The scales follow.
      const __m512i qh =
          _mm512_permutexvar_epi16(_mm512_setr_epi64(0, 1, 2, 3, 8, 9, 10, 11),
                                   _mm512_castsi256_si512(TwoBlocks::Quarters(a.qh, b.qh)));
      const __m512i top = Vbmi::Fields(qh, 0, 2, 4, 6, 8, 10, 12, 14);
      index.high[v][0] = _mm512_test_epi8_mask(top, _mm512_set1_epi8(1));
      index.high[v][1] = _mm512_test_epi8_mask(top, _mm512_set1_epi8(2));
      Signs::Plain(a.qs + 32, 2 * v, out);
      Signs::Plain(b.qs + 32, 2 * v + 1, out);
    }
    index.template Lookup<2>(Grid(), found->first, found->second);
  }
};

struct WholeIQ3XXS {
  using Format = FormatIQ3XXS;
  using Block = Format::Block;
  using Entries = FourWeights;
  static constexpr LevelTable kLevels =
      LevelTable::Of<4>({4, 12, 20, 28, 36, 44, 52, 62, 0, 0, 0, 0, 0, 0, 0, 0});
  static const PackedGrid<256>& Grid() {
    static const auto grid =
        PackedGrid<256>::Pack<4>(quant::kIq3XxsGrid, [](int value) { return (value - 4) / 8; });
    return grid;
  }
  [[gnu::always_inline]] static void Find(const Block* const* blocks, Entries* found,
                                          SignBits* out) {
    Indices<4> index;
    for (int p = 0; p < 4; ++p) {
      index.low[p] = Vbmi::Load(blocks[p]->qs);
    }
    for (int p = 0; p < 4; p += 2) {
      Signs::FromWords(TwoBlocks::Halves(blocks[p]->qs + 64, blocks[p + 1]->qs + 64), p, out);
    }
    index.template Lookup<0>(Grid(), found->first, found->second);
  }
};

struct WholeIQ3S {
  using Format = FormatIQ3S;
  using Block = Format::Block;
  using Entries = FourWeights;
  static constexpr LevelTable kLevels =
      LevelTable::Of<4>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  static const PackedGrid<512>& Grid() {
    static const auto grid =
        PackedGrid<512>::Pack<4>(quant::kIq3SGrid, [](int value) { return value; });
    return grid;
  }
  [[gnu::always_inline]] static void Find(const Block* const* blocks, Entries* found,
                                          SignBits* out) {
    Indices<4> index;
    for (int p = 0; p < 4; ++p) {
      uint64_t qh;
      std::memcpy(&qh, blocks[p]->qh, sizeof(qh));
      index.low[p] = Vbmi::Load(blocks[p]->qs);
      index.high[p][0] = _cvtu64_mask64(qh);
      Signs::Plain(blocks[p]->signs, p, out);
    }
    index.template Lookup<1>(Grid(), found->first, found->second);
  }
};

// What Product256 needs of a format whose blocks are decoded whole.
template <typename Whole>
struct WholeFormat {
  using Block = typename Whole::Block;
  static constexpr int kGroup = Whole::Format::kGroup;
  static constexpr int kOffset = 0;  // of the decoded codes
  static constexpr bool kSigned = true;
  static constexpr int kLargest = Whole::Format::kLargest;
  static constexpr bool kMins = false;
  static __m256 D(const std::byte* const* blocks) { return Whole::Format::D(blocks); }
  static __m128i Scales(const Block& b) { return Whole::Format::Scales(b); }

  // The codes as signed bytes.
  static void DecodeBlocks(const Block* const* blocks, int8_t (*codes)[256]) {
    const Found found(blocks);
    for (int p = 0; p < kBlocksAtOnce; ++p) {
      for (int i = 0; i < 4; ++i) {
        __m512i code = found.entries.Code(Whole::kLevels, p, i);
        code = _mm512_mask_sub_epi8(code, found.Negative(p, i), _mm512_setzero_si512(), code);
        _mm512_store_si512(codes[p] + 64 * i, code);
      }
    }
  }

  // Lane p of sums[r]: sum over the groups of s[g] sum_i c_i q_i of activation row r and block p.
  template <int kRows>
  static void BlockDots(const Block* const* blocks, const Int8Row256* x, int64_t block,
                        __m128i* sums) {
    const Found found(blocks);
    __m256i dots[kRows][kBlocksAtOnce];  // spread over the lanes
#pragma GCC unroll 4
    for (int p = 0; p < kBlocksAtOnce; ++p) {
      SignedDots<kRows>(found, p, Scales(*blocks[p]), x, block, dots);
    }
    for (int r = 0; r < kRows; ++r) sums[r] = Lanes8::SumFour(dots[r]);
  }

 private:
  // What four blocks hold. Inlined, with Find(): of calls, which GCC makes where it inlines much
  // else, panels got .92 of their speed with four rows.
  struct Found {
    typename Whole::Entries entries;
    SignBits signs;
    [[gnu::always_inline]] explicit Found(const Block* const* blocks) {
      Whole::Find(blocks, &entries, &signs);
    }
    __mmask64 Negative(int p, int i) const { return _cvtu64_mask64(signs.negative[p][i]); }
  };

  // BlockDots of magnitudes and signs.
  template <int kRows>
  static void SignedDots(const Found& found, int p, __m128i scales, const Int8Row256* x,
                         int64_t block, __m256i (*dots)[kBlocksAtOnce]) {
    const __m512i words = _mm512_castsi256_si512(_mm256_cvtepi8_epi16(scales));
    __m512i sum[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512i code = found.entries.Code(Whole::kLevels, p, i);
      const __m512i scale = _mm512_permutexvar_epi16(PairScales(i), words);
      for (int r = 0; r < kRows; ++r) {
        __m512i q = Vbmi::Load(x[r].q + block * 256 + i * 64);
        q = _mm512_mask_sub_epi8(q, found.Negative(p, i), _mm512_setzero_si512(), q);
        // Two products of at most 62 * 127 fit into 16 bits.
        const __m512i pairs = _mm512_maddubs_epi16(code, q);
        sum[r] =
            i == 0 ? _mm512_madd_epi16(pairs, scale) : _mm512_dpwssd_epi32(sum[r], pairs, scale);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      dots[r][p] =
          _mm256_add_epi32(_mm512_castsi512_si256(sum[r]), _mm512_extracti64x4_epi64(sum[r], 1));
    }
  }

  // Which group's scale belongs to the pairs of vector i.
  static __m512i PairScales(int i) {
    constexpr int64_t kOne = 0x0001000100010001;
    const __m512i within =
        kGroup == 32 ? _mm512_setr_epi64(0, 0, 0, 0, kOne, kOne, kOne, kOne)
                     : _mm512_setr_epi64(0, 0, kOne, kOne, 2 * kOne, 2 * kOne, 3 * kOne, 3 * kOne);
    return _mm512_add_epi16(within, _mm512_set1_epi16(static_cast<int16_t>(i * (64 / kGroup))));
  }
};

}  // namespace
}  // namespace strata::compute
