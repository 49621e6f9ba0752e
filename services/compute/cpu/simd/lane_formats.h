// Formats of 32 or 64 weights whose codes come in pieces of 16 bytes, and how the blocks of kLanes
// weight rows are read into lanes, one row a lane. weight_formats.h explains the constants.
//
// `From` is where the blocks lie: apart (LaneBlocks) or interleaved (Rows8Block).
//
// Codes() writes one vector for each four weights: vector k holds the codes of weights 4 k to
// 4 k + 3 of every row, or of weights g, g + 4, g + 8, g + 12 within 16 if the format is kQuads
// (ActivationForm::kInt8x32Quads has its values in the same order).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/quant/blocks.h"
#include "common/quant/values4.h"
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

// A block of each of kLanes rows that lie apart; the interface is that of Rows8Block.
template <typename Isa>
struct LaneBlocks {
  using F = typename Isa::F;
  const std::byte* at[Isa::kLanes];

  void FourWords(size_t offset, typename Isa::I* words) const {
    Isa::LoadTransposed(at, offset, words);
  }
  F Halves(size_t offset) const {
    __m256 parts[Isa::kLanes / 8];
    for (int i = 0; i < Isa::kLanes / 8; ++i) parts[i] = Bytes::Halves(at + 8 * i, offset);
    return Isa::Join(parts);
  }
  // Of rows `first` to `first + 7`, a byte or four.
  __m256i EightWords(int first, size_t offset) const {
    const auto word = [&](int r) { return static_cast<int>(Bytes::Load4(at[first + r] + offset)); };
    return _mm256_setr_epi32(word(0), word(1), word(2), word(3), word(4), word(5), word(6),
                             word(7));
  }
  __m256i EightBytes(int first, size_t offset) const {
    // Put together outside of the vector units, which have enough to do.
    uint64_t bytes = 0;
    for (int r = 7; r >= 0; --r) bytes = bytes << 8 | static_cast<uint64_t>(at[first + r][offset]);
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
  }
};

template <typename Isa>
struct Lanes {
  using I = typename Isa::I;
  using F = typename Isa::F;
  static constexpr int kLanes = Isa::kLanes;

  // The halves of the bytes of 16 bytes of each row: low[j] and high[j] come from bytes 4 j and on.
  template <typename From>
  static void Nibbles(const From& from, size_t offset, I* low, I* high) {
    const I mask = Isa::Set1(0x0f0f0f0f);
    I words[4];
    from.FourWords(offset, words);
    for (int j = 0; j < 4; ++j) {
      low[j] = Isa::And(words[j], mask);
      high[j] = Isa::And(Isa::template ShiftRight16<4>(words[j]), mask);
    }
  }
  static void Lookup(const int8_t* values, I* codes, int count) {
    for (int k = 0; k < count; ++k) codes[k] = Isa::Lookup16(values, codes[k]);
  }
  // fn(first) for eight rows at a time, joined.
  template <typename Fn>
  static F Each(Fn fn) {
    __m256 parts[kLanes / 8];
    for (int i = 0; i < kLanes / 8; ++i) parts[i] = fn(8 * i);
    return Isa::Join(parts);
  }
};

// 32 weights: weight j in the low half of byte j, weight j + 16 in its high half.
template <typename BlockType>
struct NibbleBlocks {
  using Block = BlockType;
  static constexpr int kGroup = 32;
  static constexpr bool kQuads = false;
  template <typename Isa, typename From>
  static void Nibbles(const From& from, typename Isa::I* codes) {
    Lanes<Isa>::Nibbles(from, offsetof(Block, qs), codes, codes + 4);
  }
};

struct LaneQ40 : NibbleBlocks<quant::BlockQ4_0> {
  static constexpr int kOffset = 8;
  static constexpr bool kSigned = false;
  static constexpr bool kMins = false;
  static constexpr int kHeadroom = 8;
  template <typename Isa, typename From>
  static void Codes(const From& from, typename Isa::I* codes) {
    Nibbles<Isa>(from, codes);
  }
  template <typename Isa, typename From>
  static void Scales(const From& from, typename Isa::F* d, typename Isa::F* /*min*/) {
    d[0] = from.Halves(0);
  }
};

struct LaneQ41 : NibbleBlocks<quant::BlockQ4_1> {
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = false;
  static constexpr bool kMins = true;
  static constexpr int kHeadroom = 8;
  template <typename Isa, typename From>
  static void Codes(const From& from, typename Isa::I* codes) {
    Nibbles<Isa>(from, codes);
  }
  template <typename Isa, typename From>
  static void Scales(const From& from, typename Isa::F* d, typename Isa::F* min) {
    d[0] = from.Halves(0);
    min[0] = from.Halves(2);
  }
};

struct LaneIQ4NL : NibbleBlocks<quant::BlockIQ4_NL> {
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = true;
  static constexpr bool kMins = false;
  static constexpr int kHeadroom = 1;
  template <typename Isa, typename From>
  static void Codes(const From& from, typename Isa::I* codes) {
    Nibbles<Isa>(from, codes);
    Lanes<Isa>::Lookup(quant::kIq4NlValues, codes, 8);
  }
  template <typename Isa, typename From>
  static void Scales(const From& from, typename Isa::F* d, typename Isa::F* /*min*/) {
    d[0] = from.Halves(0);
  }
};

// Twice the values of E2M1, -12 to 12, plus 12: unsigned factors need no work on their signs.
struct E2m1Codes {
  int8_t value[16];
  static constexpr int kOffset = 12;
  constexpr E2m1Codes() : value() {
    for (int i = 0; i < 16; ++i) {
      value[i] = static_cast<int8_t>(quant::kE2m1Doubled[i] + kOffset);
    }
  }
};
inline constexpr E2m1Codes kE2m1Codes;

struct LaneMXFP4 : NibbleBlocks<quant::BlockMXFP4> {
  static constexpr int kOffset = E2m1Codes::kOffset;
  static constexpr bool kSigned = false;
  static constexpr bool kMins = false;
  static constexpr int kHeadroom = 4;  // codes reach 24
  template <typename Isa, typename From>
  static void Codes(const From& from, typename Isa::I* codes) {
    Nibbles<Isa>(from, codes);
    Lanes<Isa>::Lookup(kE2m1Codes.value, codes, 8);
  }
  template <typename Isa, typename From>
  static void Scales(const From& from, typename Isa::F* d, typename Isa::F* /*min*/) {
    d[0] = Lanes<Isa>::Each([&](int first) { return EightScales(from.EightBytes(first, 0)); });
  }
  // Half of the E8M0 scale: 2^(e - 128), denormal for e < 2.
  static __m256 EightScales(__m256i exponent) {
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(exponent, _mm256_set1_epi32(1)), 23);
    const __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), exponent);
    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), exponent)));
  }
};

struct LaneNVFP4 {
  using Block = quant::BlockNVFP4;
  static constexpr int kGroup = 16;
  static constexpr bool kQuads = false;
  static constexpr int kOffset = E2m1Codes::kOffset;
  static constexpr bool kSigned = false;
  static constexpr bool kMins = false;
  static constexpr int kHeadroom = 4;  // codes reach 24; all of a group
  template <typename Isa, typename From>
  static void Codes(const From& from, typename Isa::I* codes) {
    // Eight bytes hold a group: weights 0 to 7 in the low halves, 8 to 15 in the high ones.
    for (int piece = 0; piece < 2; ++piece) {
      typename Isa::I low[4];
      typename Isa::I high[4];
      Lanes<Isa>::Nibbles(from, offsetof(Block, qs) + piece * 16, low, high);
      for (int group = 0; group < 2; ++group) {
        typename Isa::I* to = codes + piece * 8 + group * 4;
        to[0] = low[2 * group];
        to[1] = low[2 * group + 1];
        to[2] = high[2 * group];
        to[3] = high[2 * group + 1];
      }
    }
    Lanes<Isa>::Lookup(kE2m1Codes.value, codes, 16);
  }
  template <typename Isa, typename From>
  static void Scales(const From& from, typename Isa::F* d, typename Isa::F* /*min*/) {
    for (int group = 0; group < 4; ++group) {
      d[group] = Lanes<Isa>::Each([&](int first) {
        const __m256i words = _mm256_srli_epi32(from.EightWords(first, 0), 8 * group);
        return EightScales(_mm256_and_si256(words, _mm256_set1_epi32(255)));
      });
    }
  }
  // Half of the UE4M3 scale. Its seven bits moved to a float's place are that float times 2^120,
  // denormal ones included; 127 is not a number and stands for zero.
  static __m256 EightScales(__m256i bits) {
    const __m256i seven = _mm256_andnot_si256(_mm256_cmpeq_epi32(bits, _mm256_set1_epi32(127)),
                                              _mm256_and_si256(bits, _mm256_set1_epi32(127)));
    return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(seven, 20)),
                         _mm256_set1_ps(0x1p119f));
  }
};

struct LaneQ20 {
  using Block = quant::BlockQ2_0;
  static constexpr int kGroup = 32;
  static constexpr bool kQuads = true;
  static constexpr int kOffset = 1;
  static constexpr bool kSigned = false;
  static constexpr bool kMins = false;
  static constexpr int kHeadroom = 8;
  template <typename Isa, typename From>
  static void Codes(const From& from, typename Isa::I* codes) {
    // A byte holds four weights: one shift makes the codes of every fourth weight.
    const typename Isa::I mask = Isa::Set1(0x03030303);
    typename Isa::I words[4];
    from.FourWords(offsetof(Block, qs), words);
    for (int j = 0; j < 4; ++j) {
      codes[4 * j] = Isa::And(words[j], mask);
      codes[4 * j + 1] = Isa::And(Isa::template ShiftRight16<2>(words[j]), mask);
      codes[4 * j + 2] = Isa::And(Isa::template ShiftRight16<4>(words[j]), mask);
      codes[4 * j + 3] = Isa::And(Isa::template ShiftRight16<6>(words[j]), mask);
    }
  }
  template <typename Isa, typename From>
  static void Scales(const From& from, typename Isa::F* d, typename Isa::F* /*min*/) {
    d[0] = d[1] = from.Halves(0);
  }
};

}  // namespace
}  // namespace strata::compute
