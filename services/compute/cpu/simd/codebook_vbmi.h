// The i-quants with AVX-512 VBMI: the blocks of four weight rows are decoded at a time, whole, by
// the lookups of vbmi_lookup.h. The results are those of codebook_formats.h; only the way differs.
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
#include "services/compute/cpu/simd/vbmi_lookup.h"

namespace strata::compute {
namespace {

inline constexpr int kBlocksAtOnce = 4;

// Weight 64 i + j of block p is code[p][i] byte j, negated if bit j of negative[p][i] is set, less
// the format's offset.
struct DecodedBlocks {
  __m512i code[kBlocksAtOnce][4];
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

  // From 64 indices (bit 7 is ignored), one for eight weights: of two blocks, from number `first`.
  static void Even(__m512i indices, int first, DecodedBlocks* out) {
    const __m512i bytes =
        _mm512_permutex2var_epi8(Vbmi::Load(kTable.byte), indices, Vbmi::Load(kTable.byte + 64));
    std::memcpy(out->negative[first], &bytes, sizeof(bytes));
  }
  // From sixteen 32-bit words with four sign indices each, from bit 0 up.
  static void FromWords(__m512i words, int first, DecodedBlocks* out) {
    Even(Vbmi::Fields(words, 0, 7, 14, 21, 32, 39, 46, 53), first, out);
  }
  static void Plain(const uint8_t* bytes, int block, DecodedBlocks* out) {
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
  // 16 bytes of each, every doubleword widened to a quadword.
  static __m512i WideWords(const void* a, const void* b) {
    return _mm512_cvtepu32_epi64(Quarters(a, b));
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

// Codebooks of eight weights an entry.
struct EightWeights {
  static constexpr int kVectors = kBlocksAtOnce / 2;

  template <int kHigh>
  static void Decode(const PackedGrid<256 << kHigh>& grid, const LevelTable& levels,
                     const Indices<kVectors>& index, DecodedBlocks* out) {
    __m512i first[kVectors];
    __m512i second[kVectors];
    index.template Lookup<kHigh>(grid, first, second);
    for (int v = 0; v < kVectors; ++v) {
      for (int i = 0; i < 8; ++i) {
        out->code[2 * v + i / 4][i % 4] = Vbmi::EightTwoBitFields(first[v], second[v], i, levels);
      }
    }
  }
};

// Codebooks of four weights an entry.
struct FourWeights {
  static constexpr int kVectors = kBlocksAtOnce;

  template <int kHigh>
  static void Decode(const PackedGrid<256 << kHigh>& grid, const LevelTable& levels,
                     const Indices<kVectors>& index, DecodedBlocks* out) {
    __m512i first[kVectors];
    __m512i second[kVectors];
    index.template Lookup<kHigh>(grid, first, second);
    for (int p = 0; p < kVectors; ++p) {
      for (int i = 0; i < 4; ++i) {
        out->code[p][i] = Vbmi::FourFourBitFields(first[p], second[p], i, levels);
      }
    }
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
  static constexpr int kOffset = 0;
  static void Decode(const Block* const* blocks, DecodedBlocks* out) {
    static const auto grid = PackedGrid<256>::Pack<2>(quant::kIq2XxsGrid, &Iq2Levels::Level);
    Indices<2> index;
    for (int v = 0; v < 2; ++v) {
      // Eight times four indices, four sign indices and a scale.
      const __m512i a = Vbmi::Load(blocks[2 * v]->qs);
      const __m512i b = Vbmi::Load(blocks[2 * v + 1]->qs);
      index.low[v] = TwoBlocks::EvenWords(a, b);
      Signs::FromWords(TwoBlocks::OddWords(a, b), 2 * v, out);
    }
    EightWeights::Decode<0>(grid, Iq2Levels::kTable, index, out);
  }
};

struct WholeIQ2XS {
  using Format = FormatIQ2XS;
  using Block = Format::Block;
  static constexpr int kOffset = 0;
  static void Decode(const Block* const* blocks, DecodedBlocks* out) {
    static const auto grid = PackedGrid<512>::Pack<2>(quant::kIq2XsGrid, &Iq2Levels::Level);
    Indices<2> index;
    for (int v = 0; v < 2; ++v) {
      const __m512i a = Vbmi::Load(blocks[2 * v]->qs);
      const __m512i b = Vbmi::Load(blocks[2 * v + 1]->qs);
      const __m512i rest = TwoBlocks::OddBytes(a, b);
      index.low[v] = TwoBlocks::EvenBytes(a, b);
      index.high[v][0] = _mm512_test_epi8_mask(rest, _mm512_set1_epi8(1));
      Signs::Even(_mm512_srli_epi16(rest, 1), 2 * v, out);
    }
    EightWeights::Decode<1>(grid, Iq2Levels::kTable, index, out);
  }
};

struct WholeIQ2S {
  using Format = FormatIQ2S;
  using Block = Format::Block;
  static constexpr int kOffset = 0;
  static void Decode(const Block* const* blocks, DecodedBlocks* out) {
    static const auto grid = PackedGrid<1024>::Pack<2>(quant::kIq2SGrid, &Iq2Levels::Level);
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
    EightWeights::Decode<2>(grid, Iq2Levels::kTable, index, out);
  }
};

struct WholeIQ3XXS {
  using Format = FormatIQ3XXS;
  using Block = Format::Block;
  static constexpr int kOffset = 0;
  static constexpr LevelTable kLevels =
      LevelTable::Of<4>({4, 12, 20, 28, 36, 44, 52, 62, 0, 0, 0, 0, 0, 0, 0, 0});
  static void Decode(const Block* const* blocks, DecodedBlocks* out) {
    static const auto grid =
        PackedGrid<256>::Pack<4>(quant::kIq3XxsGrid, [](int value) { return (value - 4) / 8; });
    Indices<4> index;
    for (int p = 0; p < 4; ++p) {
      index.low[p] = Vbmi::Load(blocks[p]->qs);
    }
    for (int p = 0; p < 4; p += 2) {
      Signs::FromWords(TwoBlocks::Halves(blocks[p]->qs + 64, blocks[p + 1]->qs + 64), p, out);
    }
    FourWeights::Decode<0>(grid, kLevels, index, out);
  }
};

struct WholeIQ3S {
  using Format = FormatIQ3S;
  using Block = Format::Block;
  static constexpr int kOffset = 0;
  static constexpr LevelTable kLevels =
      LevelTable::Of<4>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  static void Decode(const Block* const* blocks, DecodedBlocks* out) {
    static const auto grid =
        PackedGrid<512>::Pack<4>(quant::kIq3SGrid, [](int value) { return value; });
    Indices<4> index;
    for (int p = 0; p < 4; ++p) {
      uint64_t qh;
      std::memcpy(&qh, blocks[p]->qh, sizeof(qh));
      index.low[p] = Vbmi::Load(blocks[p]->qs);
      index.high[p][0] = _cvtu64_mask64(qh);
      Signs::Plain(blocks[p]->signs, p, out);
    }
    FourWeights::Decode<1>(grid, kLevels, index, out);
  }
};

// The codes of IQ1, 8 grid + shift with a shift of 1 or -1, as 8 (grid + 1) + {2 or 0} less 9.
//
// The codebook has 2048 entries: 32 lookups and as many blends for every vector of indices, more
// than loading the entries one by one beside the vector units.
struct Iq1Codes {
  static constexpr int kOffset = 9;
  static constexpr LevelTable kTable = LevelTable::Of<2>({0, 8, 16, 0});

  struct Grid {
    uint16_t entry[2048];
  };
  static Grid MakeGrid() {
    const auto packed =
        PackedGrid<2048>::Pack<2>(quant::kIq1SGrid, [](int value) { return value + 1; });
    Grid grid;
    for (int i = 0; i < 2048; ++i) {
      grid.entry[i] = static_cast<uint16_t>(packed.byte[0][i] | packed.byte[1][i] << 8);
    }
    return grid;
  }

  // The 32 indices of a block as words: bits 0 to 2 of the bytes of `top` complete `low`.
  static void Indices(const uint8_t* low, __m256i top, uint16_t* index) {
    const __m256i three = _mm256_and_si256(top, _mm256_set1_epi8(7));
    _mm512_store_si512(index, _mm512_or_si512(_mm512_cvtepu8_epi16(Bytes::Load(low)),
                                              _mm512_slli_epi16(_mm512_cvtepu8_epi16(three), 8)));
  }

  // Through registers: a vector read from memory just written in pieces would wait for it.
  static __m128i GatherEight(const Grid& grid, const uint16_t* index) {
    __m128i x = _mm_cvtsi32_si128(grid.entry[index[0]]);
    x = _mm_insert_epi16(x, grid.entry[index[1]], 1);
    x = _mm_insert_epi16(x, grid.entry[index[2]], 2);
    x = _mm_insert_epi16(x, grid.entry[index[3]], 3);
    x = _mm_insert_epi16(x, grid.entry[index[4]], 4);
    x = _mm_insert_epi16(x, grid.entry[index[5]], 5);
    x = _mm_insert_epi16(x, grid.entry[index[6]], 6);
    return _mm_insert_epi16(x, grid.entry[index[7]], 7);
  }

  // index[p][i] is entry i of block p; bit i of up[p] is set where the shift is 1.
  static void Decode(const uint16_t (&index)[kBlocksAtOnce][32], const uint32_t* up,
                     DecodedBlocks* out) {
    static const Grid grid = MakeGrid();
    for (int p = 0; p < kBlocksAtOnce; ++p) {
      for (int i = 0; i < 4; ++i) {
        const auto eight = static_cast<__mmask8>(up[p] >> 8 * i);
        const __m512i entries = _mm512_cvtepu16_epi64(GatherEight(grid, index[p] + 8 * i));
        out->code[p][i] = _mm512_add_epi8(Vbmi::TwoBitFields(entries, kTable),
                                          _mm512_maskz_set1_epi64(eight, 0x0202020202020202));
      }
    }
  }
};

struct WholeIQ1S {
  using Format = FormatIQ1S;
  using Block = Format::Block;
  static constexpr int kOffset = Iq1Codes::kOffset;
  static void Decode(const Block* const* blocks, DecodedBlocks* out) {
    alignas(64) uint16_t index[kBlocksAtOnce][32];
    uint32_t up[kBlocksAtOnce];
    for (int v = 0; v < kBlocksAtOnce; v += 2) {
      // A 16-bit word for 32 weights: three bits an entry, the scale, the sign of the shift.
      const __m512i words = TwoBlocks::WideWords(blocks[v]->qh, blocks[v + 1]->qh);
      const __m512i top = Vbmi::Fields(words, 0, 3, 6, 9, 16, 19, 22, 25);
      Iq1Codes::Indices(blocks[v]->qs, _mm512_castsi512_si256(top), index[v]);
      Iq1Codes::Indices(blocks[v + 1]->qs, _mm512_extracti64x4_epi64(top, 1), index[v + 1]);
      const uint64_t down =
          _cvtmask64_u64(_mm512_movepi8_mask(Vbmi::Fields(words, 8, 8, 8, 8, 24, 24, 24, 24)));
      up[v] = static_cast<uint32_t>(~down);
      up[v + 1] = static_cast<uint32_t>(~down >> 32);
    }
    Iq1Codes::Decode(index, up, out);
  }
};

struct WholeIQ1M {
  using Format = FormatIQ1M;
  using Block = Format::Block;
  static constexpr int kOffset = Iq1Codes::kOffset;
  static void Decode(const Block* const* blocks, DecodedBlocks* out) {
    alignas(64) uint16_t index[kBlocksAtOnce][32];
    uint32_t up[kBlocksAtOnce];
    for (int v = 0; v < kBlocksAtOnce; v += 2) {
      // Four bits an entry, the highest is the sign of the shift.
      const __m512i top = Vbmi::Fields(TwoBlocks::WideWords(blocks[v]->qh, blocks[v + 1]->qh), 0, 4,
                                       8, 12, 16, 20, 24, 28);
      Iq1Codes::Indices(blocks[v]->qs, _mm512_castsi512_si256(top), index[v]);
      Iq1Codes::Indices(blocks[v + 1]->qs, _mm512_extracti64x4_epi64(top, 1), index[v + 1]);
      const uint64_t clear = _cvtmask64_u64(_mm512_testn_epi8_mask(top, _mm512_set1_epi8(8)));
      up[v] = static_cast<uint32_t>(clear);
      up[v + 1] = static_cast<uint32_t>(clear >> 32);
    }
    Iq1Codes::Decode(index, up, out);
  }
};

// What Product256 needs of a format whose blocks are decoded whole.
template <typename Whole>
struct WholeFormat {
  using Block = typename Whole::Block;
  static constexpr int kGroup = Whole::Format::kGroup;
  static constexpr int kOffset = 0;  // of the decoded codes
  static constexpr bool kSigned = true;
  static constexpr bool kMins = false;
  static __m256 D(const std::byte* const* blocks) { return Whole::Format::D(blocks); }
  static __m128i Scales(const Block& b) { return Whole::Format::Scales(b); }

  // The codes as signed bytes.
  static void DecodeBlocks(const Block* const* blocks, int8_t (*codes)[256]) {
    DecodedBlocks decoded;
    Whole::Decode(blocks, &decoded);
    for (int p = 0; p < kBlocksAtOnce; ++p) {
      for (int i = 0; i < 4; ++i) {
        __m512i code = decoded.code[p][i];
        if constexpr (Whole::kOffset != 0) {
          code = _mm512_sub_epi8(code, _mm512_set1_epi8(Whole::kOffset));
        } else {
          code = _mm512_mask_sub_epi8(code, _cvtu64_mask64(decoded.negative[p][i]),
                                      _mm512_setzero_si512(), code);
        }
        _mm512_store_si512(codes[p] + 64 * i, code);
      }
    }
  }

  // dots[r][p]: sum over the groups of s[g] sum_i c_i q_i of activation row r and block p, spread
  // over eight lanes.
  template <int kRows>
  static void BlockDots(const Block* const* blocks, const Int8Row256* x, int64_t block,
                        __m256i (*dots)[kBlocksAtOnce]) {
    DecodedBlocks decoded;
    Whole::Decode(blocks, &decoded);
    for (int p = 0; p < kBlocksAtOnce; ++p) {
      const __m128i scales = Scales(*blocks[p]);
      const __m512i lanes = _mm512_cvtepi8_epi32(scales);
      __m512i sum[kRows];
      for (int r = 0; r < kRows; ++r) sum[r] = _mm512_setzero_si512();
      for (int i = 0; i < 4; ++i) {
        const __m512i scale = _mm512_permutexvar_epi32(LaneScales(i), lanes);
        for (int r = 0; r < kRows; ++r) {
          __m512i q = Vbmi::Load(x[r].q + block * 256 + i * 64);
          if constexpr (Whole::kOffset == 0) {
            q = _mm512_mask_sub_epi8(q, _cvtu64_mask64(decoded.negative[p][i]),
                                     _mm512_setzero_si512(), q);
          }
          // Four products of at most 62 * 127 fit into 16 bits, and the scale's upper half is zero:
          // a product of 16-bit pairs is the product of the lanes.
          const __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), decoded.code[p][i], q);
          sum[r] = _mm512_dpwssd_epi32(sum[r], dot, scale);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        dots[r][p] =
            _mm256_add_epi32(_mm512_castsi512_si256(sum[r]), _mm512_extracti64x4_epi64(sum[r], 1));
        if constexpr (Whole::kOffset != 0) {
          dots[r][p] = _mm256_sub_epi32(dots[r][p], OffsetTerm(scales, x[r], block));
        }
      }
    }
  }

 private:
  // Which group's scale belongs to the lanes of vector i.
  static __m512i LaneScales(int i) {
    const __m512i within = kGroup == 32
                               ? _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1)
                               : _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_add_epi32(within, _mm512_set1_epi32(i * (64 / kGroup)));
  }
  // kOffset sum_g s[g] sum_i q_i.
  static __m256i OffsetTerm(__m128i scales, const Int8Row256& x, int64_t block) {
    __m256i sums;
    if constexpr (kGroup == 32) {
      sums = _mm256_zextsi128_si256(
          _mm_madd_epi16(_mm_cvtepi8_epi16(scales), Bytes::Load16(x.sum32 + block * 8)));
    } else {
      sums = _mm256_madd_epi16(_mm256_cvtepi8_epi16(scales), Bytes::Load(x.sum16 + block * 16));
    }
    return _mm256_mullo_epi32(sums, _mm256_set1_epi32(Whole::kOffset));
  }
};

}  // namespace
}  // namespace strata::compute
