// Table lookups of bytes in registers: what AVX-512 VBMI has and older instruction sets lack.
//
// A codebook entry of an i-quant holds 4 or 8 small integers. Reading it from memory costs a load,
// and computing its address several instructions more, for every entry; a superblock has 32 or 64
// of them. vpermi2b looks up 64 indices in 128 bytes at once, so a codebook is packed to two bytes
// an entry and looked up one byte at a time for 64 entries: 2 instructions for each 128 entries of
// the codebook. The bit fields of the two bytes are then spread over the weights.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace strata::compute {
namespace {

// A codebook in two bytes an entry: bit fields of levels, the first weight in the lowest bits of
// `byte[0]`. `kBits` is 2 (eight weights an entry) or 4 (four weights an entry).
template <int kEntries>
struct PackedGrid {
  alignas(64) uint8_t byte[2][kEntries];

  // `level` maps a codebook value to its field.
  template <int kBits, typename Entry, typename Level>
  static PackedGrid Pack(const Entry* grid, Level level) {
    constexpr int kWeightsPerByte = 8 / kBits;
    PackedGrid packed = {};
    for (int i = 0; i < kEntries; ++i) {
      for (int j = 0; j < 2 * kWeightsPerByte; ++j) {
        const auto value = static_cast<int8_t>(grid[i] >> 8 * j & 0xff);
        packed.byte[j / kWeightsPerByte][i] |=
            static_cast<uint8_t>(level(value) << kBits * (j % kWeightsPerByte));
      }
    }
    return packed;
  }
};

// The levels of a codebook by field; fields of fewer than six bits repeat, because the lookup reads
// six bits and the field's neighbours are among them.
struct LevelTable {
  alignas(64) int8_t value[64];

  template <int kBits>
  static constexpr LevelTable Of(const int8_t (&levels)[1 << kBits]) {
    LevelTable table = {};
    for (int i = 0; i < 64; ++i) table.value[i] = levels[i % (1 << kBits)];
    return table;
  }
  constexpr LevelTable Plus(int more) const {
    LevelTable table = {};
    for (int i = 0; i < 64; ++i) table.value[i] = static_cast<int8_t>(value[i] + more);
    return table;
  }
};

struct Vbmi {
  static __m512i Load(const void* p) { return _mm512_loadu_si512(p); }

  static constexpr int kMostHigh = 2;  // for codebooks of up to 1024 entries

  // value[v] = table[index v], 64 times, of 256 << kHigh bytes: bits 0 to 7 of the index are in
  // low[v], bit 8 + j in high[v][j]. Several vectors of indices share the loads of the table, which
  // is what limits a large one.
  template <int kHigh, int kVectors>
  static void Lookup(const uint8_t* table, const __m512i (&low)[kVectors],
                     const __mmask64 (&high)[kVectors][kMostHigh], __m512i (&value)[kVectors]) {
    if constexpr (kHigh == 0) {
      const __m512i t[4] = {Load(table), Load(table + 64), Load(table + 128), Load(table + 192)};
      for (int v = 0; v < kVectors; ++v) {
        // The instruction reads seven bits of an index.
        value[v] = _mm512_mask_blend_epi8(_mm512_movepi8_mask(low[v]),
                                          _mm512_permutex2var_epi8(t[0], low[v], t[1]),
                                          _mm512_permutex2var_epi8(t[2], low[v], t[3]));
      }
    } else {
      __m512i upper[kVectors];
      Lookup<kHigh - 1>(table, low, high, value);
      Lookup<kHigh - 1>(table + (128 << kHigh), low, high, upper);
      for (int v = 0; v < kVectors; ++v) {
        value[v] = _mm512_mask_blend_epi8(high[v][kHigh - 1], value[v], upper[v]);
      }
    }
  }

  // Byte j of every quadword is the eight bits of it that begin at bit at[j].
  static __m512i Fields(__m512i x, int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7) {
    return _mm512_multishift_epi64_epi8(Offsets(a0, a1, a2, a3, a4, a5, a6, a7), x);
  }
  static __m512i Offsets(int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7) {
    return _mm512_set1_epi64(
        static_cast<int64_t>(static_cast<uint64_t>(a0) | static_cast<uint64_t>(a1) << 8 |
                             static_cast<uint64_t>(a2) << 16 | static_cast<uint64_t>(a3) << 24 |
                             static_cast<uint64_t>(a4) << 32 | static_cast<uint64_t>(a5) << 40 |
                             static_cast<uint64_t>(a6) << 48 | static_cast<uint64_t>(a7) << 56));
  }

  // The values of 64 weights: entries 8 i .. 8 i + 7 of a codebook with two-bit fields, whose bytes
  // are first[] and second[].
  static __m512i EightTwoBitFields(__m512i first, __m512i second, int i, const LevelTable& levels) {
    // Both bytes of entry 8 i + n into quadword n.
    const __m512i pick = _mm512_add_epi8(
        _mm512_set1_epi8(static_cast<char>(8 * i)),
        _mm512_set_epi64(0x4707, 0x4606, 0x4505, 0x4404, 0x4303, 0x4202, 0x4101, 0x4000));
    return TwoBitFields(_mm512_permutex2var_epi8(first, pick, second), levels);
  }
  // Eight values from the lowest 16 bits of every quadword.
  static __m512i TwoBitFields(__m512i entries, const LevelTable& levels) {
    return _mm512_permutexvar_epi8(Fields(entries, 0, 2, 4, 6, 8, 10, 12, 14), Load(levels.value));
  }
  // The same for the entries 16 i .. 16 i + 15 of a codebook of four four-bit fields.
  static __m512i FourFourBitFields(__m512i first, __m512i second, int i, const LevelTable& levels) {
    // Both bytes of entry 16 i + n into doubleword n.
    const __m512i pick = _mm512_add_epi8(
        _mm512_set1_epi8(static_cast<char>(16 * i)),
        _mm512_set_epi32(0x4f0f, 0x4e0e, 0x4d0d, 0x4c0c, 0x4b0b, 0x4a0a, 0x4909, 0x4808, 0x4707,
                         0x4606, 0x4505, 0x4404, 0x4303, 0x4202, 0x4101, 0x4000));
    const __m512i entries = _mm512_permutex2var_epi8(first, pick, second);
    return _mm512_permutexvar_epi8(Fields(entries, 0, 4, 8, 12, 32, 36, 40, 44),
                                   Load(levels.value));
  }
};

}  // namespace
}  // namespace strata::compute
