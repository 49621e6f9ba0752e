// Formats of 256 weights as they are read from eight interleaved rows: weight_formats.h explains
// the constants that come from `Plain`.
//
// A block is read in kParts, each with kSlots groups at a time, as the codes of several groups
// share words. Codes(block, part, fn) calls fn(slot, step, codes) with the codes of weights
// First(part, slot) + 4 step and on of every row, step by step. If kOddTimes4, the codes of odd
// slots are four times what they should be: bits are cheaper to use where they are than to move.
// kHeadroom is how many pair sums of codes so delivered fit 16 bits, kLargest the largest |c|,
// times four if it may be.
//
// Scales() and Mins() give four groups in each vector: byte g % 4 of a lane of vector g / 4.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/quant/values4.h"
#include "services/compute/cpu/simd/rows8.h"
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

template <typename Isa>
struct Words {
  using I = typename Isa::I;
  static I Byte(int byte) { return Isa::Set1(static_cast<int32_t>(byte * 0x01010101U)); }
  static I And(I x, int mask) { return Isa::And(x, Byte(mask)); }
  // x shifted left (positive) or right within 16 bits, then masked.
  template <int kLeft>
  static I Field(I x, int mask) {
    if constexpr (kLeft > 0) {
      return And(Isa::template ShiftLeft16<kLeft>(x), mask);
    } else if constexpr (kLeft < 0) {
      return And(Isa::template ShiftRight16<-kLeft>(x), mask);
    } else {
      return And(x, mask);
    }
  }
};

// Groups of 16, of which 16 words of `qs` hold two bits each: word 8 h + i has in its k-th fields
// the codes of weights 128 h + 32 k + 4 i and on. A part is half of a half.
struct TwoBitParts {
  static constexpr int kParts = 4;
  static constexpr int kSlots = 4;
  static constexpr bool kOddTimes4 = true;
  static constexpr int First(int part, int slot) {
    return part / 2 * 128 + part % 2 * 16 + slot * 32;
  }
};

struct Rows8Q2K : TwoBitParts {
  using Plain = FormatQ2K;
  using Block = Plain::Block;
  static constexpr int kLargest = 12;
  static constexpr int kHeadroom = 4;
  static constexpr bool kSignedScales = false;
  template <typename Isa>
  static void Scales(const Rows8Block<Isa, Block>& b, typename Isa::I* scales,
                     typename Isa::I* mins) {
    for (int i = 0; i < 4; ++i) {
      const auto both = b.Word(offsetof(Block, scales) + 4 * i);
      scales[i] = Words<Isa>::And(both, 15);
      mins[i] = Words<Isa>::template Field<-4>(both, 15);
    }
  }
  template <typename Isa>
  static void D(const Rows8Block<Isa, Block>& b, typename Isa::F* d, typename Isa::F* dmin) {
    b.HalfPair(offsetof(Block, d), d, dmin);
  }
  template <typename Isa, typename Fn>
  static void Codes(const Rows8Block<Isa, Block>& b, int part, Fn fn) {
    using W = Words<Isa>;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto low = b.Word(offsetof(Block, qs) + 16 * part + 4 * i);
      const auto high = Isa::template ShiftRight16<4>(low);
      fn(0, i, W::And(low, 3));
      fn(1, i, W::And(low, 12));
      fn(2, i, W::And(high, 3));
      fn(3, i, W::And(high, 12));
    }
  }
};

struct Rows8Q3K : TwoBitParts {
  using Plain = FormatQ3K;
  using Block = Plain::Block;
  static constexpr int kLargest = 16;
  static constexpr int kHeadroom = 4;
  static constexpr bool kSignedScales = true;
  template <typename Isa>
  static void Scales(const Rows8Block<Isa, Block>& b, typename Isa::I* scales,
                     typename Isa::I* /*mins*/) {
    using W = Words<Isa>;
    const size_t at = offsetof(Block, scales);
    const auto first = b.Word(at);
    const auto second = b.Word(at + 4);
    const auto top = b.Word(at + 8);
    const typename Isa::I s[4] = {
        Isa::Or(W::And(first, 15), W::template Field<4>(top, 0x30)),
        Isa::Or(W::And(second, 15), W::template Field<2>(top, 0x30)),
        Isa::Or(W::template Field<-4>(first, 15), W::And(top, 0x30)),
        Isa::Or(W::template Field<-4>(second, 15), W::template Field<-2>(top, 0x30))};
    for (int i = 0; i < 4; ++i) scales[i] = Isa::Sub8(s[i], W::Byte(32));
  }
  template <typename Isa>
  static void D(const Rows8Block<Isa, Block>& b, typename Isa::F* d, typename Isa::F* /*dmin*/) {
    *d = b.Halves(offsetof(Block, d));
  }
  template <typename Isa, typename Fn>
  static void Codes(const Rows8Block<Isa, Block>& b, int part, Fn fn) {
    using W = Words<Isa>;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto low = b.Word(offsetof(Block, qs) + 16 * part + 4 * i);
      const auto high = Isa::template ShiftRight16<4>(low);
      // Bits 0 to 3 (second half of the weights: 4 to 7) of hmask are the codes' third bits.
      auto third = b.Word(offsetof(Block, hmask) + part % 2 * 16 + 4 * i);
      if (part >= 2) third = Isa::template ShiftRight16<4>(third);
      fn(0, i, Isa::Or(W::And(low, 3), W::template Field<2>(third, 4)));
      fn(1, i, Isa::Or(W::And(low, 12), W::template Field<3>(third, 16)));
      fn(2, i, Isa::Or(W::And(high, 3), W::And(third, 4)));
      fn(3, i, Isa::Or(W::And(high, 12), W::template Field<1>(third, 16)));
    }
  }
};

// Groups of 32, two of which share eight words: a part.
template <typename PlainFormat>
struct NibbleParts {
  using Plain = PlainFormat;
  using Block = typename Plain::Block;
  static constexpr int kParts = 4;
  static constexpr int kSlots = 2;
  static constexpr bool kOddTimes4 = false;
  static constexpr bool kSignedScales = false;
  static constexpr int First(int part, int slot) { return part * 64 + slot * 32; }
  // Eight 6-bit scales and minima of Q4_K and Q5_K.
  template <typename Isa>
  static void Scales(const Rows8Block<Isa, Block>& b, typename Isa::I* scales,
                     typename Isa::I* mins) {
    using W = Words<Isa>;
    const auto first = b.Word(offsetof(Block, scales));
    const auto second = b.Word(offsetof(Block, scales) + 4);
    const auto third = b.Word(offsetof(Block, scales) + 8);
    scales[0] = W::And(first, 63);
    scales[1] = Isa::Or(W::And(third, 15), W::template Field<-2>(first, 0x30));
    mins[0] = W::And(second, 63);
    mins[1] = Isa::Or(W::template Field<-4>(third, 15), W::template Field<-2>(second, 0x30));
  }
  template <typename Isa>
  static void D(const Rows8Block<Isa, Block>& b, typename Isa::F* d, typename Isa::F* dmin) {
    b.HalfPair(offsetof(Block, d), d, dmin);
  }
};

struct Rows8Q4K : NibbleParts<FormatQ4K> {
  static constexpr int kLargest = 15;
  static constexpr int kHeadroom = 8;
  template <typename Isa, typename Fn>
  static void Codes(const Rows8Block<Isa, Block>& b, int part, Fn fn) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const auto both = b.Word(offsetof(Block, qs) + 32 * part + 4 * i);
      fn(0, i, Words<Isa>::And(both, 15));
      fn(1, i, Words<Isa>::template Field<-4>(both, 15));
    }
  }
};

struct Rows8Q5K : NibbleParts<FormatQ5K> {
  static constexpr int kLargest = 31;
  static constexpr int kHeadroom = 4;
  template <typename Isa, typename Fn>
  static void Codes(const Rows8Block<Isa, Block>& b, int part, Fn fn) {
    using W = Words<Isa>;
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const auto both = b.Word(offsetof(Block, qs) + 32 * part + 4 * i);
      auto fifth = b.Word(offsetof(Block, qh) + 4 * i);  // bit 2 part for the first group
      if (part == 1) fifth = Isa::template ShiftRight16<2>(fifth);
      if (part == 2) fifth = Isa::template ShiftRight16<4>(fifth);
      if (part == 3) fifth = Isa::template ShiftRight16<6>(fifth);
      fn(0, i, Isa::Or(W::And(both, 15), W::template Field<4>(fifth, 16)));
      fn(1, i, Isa::Or(W::template Field<-4>(both, 15), W::template Field<3>(fifth, 16)));
    }
  }
};

// Groups of 32: the low halves of 16 bytes, then the high ones.
struct Rows8IQ4XS {
  using Plain = FormatIQ4XS;
  using Block = Plain::Block;
  static constexpr int kParts = 8;
  static constexpr int kSlots = 1;
  static constexpr bool kOddTimes4 = false;
  static constexpr int kLargest = 127;
  static constexpr int kHeadroom = 1;
  static constexpr bool kSignedScales = true;
  static constexpr int First(int part, int /*slot*/) { return part * 32; }
  template <typename Isa>
  static void Scales(const Rows8Block<Isa, Block>& b, typename Isa::I* scales,
                     typename Isa::I* /*mins*/) {
    using W = Words<Isa>;
    // The four low bits of group g are nibble g of `low`, the two high ones field g of the upper
    // half of `top`. With the words' bytes doubled, byte j of the first four groups' scales comes
    // from byte j / 2, and so on.
    const auto low = b.Word(offsetof(Block, scales_l));
    const auto top = b.Word(offsetof(Block, d));
    const auto even = Isa::Set1(0x000f000f);
    const auto odd = Isa::Set1(0x0f000f00);
    for (int i = 0; i < 2; ++i) {
      const auto nibbles = Isa::PickBytes(low, i == 0 ? 0x01010000 : 0x03030202);
      const auto four =
          Isa::Or(Isa::And(nibbles, even), Isa::And(Isa::template ShiftRight16<4>(nibbles), odd));
      // Fields 0 to 3 of a byte, four times: each is wanted at bit 4 of its place.
      const auto fields = Isa::PickBytes(top, i == 0 ? 0x02020202 : 0x03030303);
      const auto two =
          Isa::Or(Isa::Or(Isa::And(Isa::template ShiftLeft16<4>(fields), Isa::Set1(0x00000030)),
                          Isa::And(Isa::template ShiftLeft16<2>(fields), Isa::Set1(0x00003000))),
                  Isa::Or(Isa::And(fields, Isa::Set1(0x00300000)),
                          Isa::And(Isa::template ShiftRight16<2>(fields), Isa::Set1(0x30000000))));
      scales[i] = Isa::Sub8(Isa::Or(four, two), W::Byte(32));
    }
  }
  template <typename Isa>
  static void D(const Rows8Block<Isa, Block>& b, typename Isa::F* d, typename Isa::F* /*dmin*/) {
    *d = b.Halves(offsetof(Block, d));
  }
  template <typename Isa, typename Fn>
  static void Codes(const Rows8Block<Isa, Block>& b, int part, Fn fn) {
    using W = Words<Isa>;
    typename Isa::I words[4];
    b.FourWords(offsetof(Block, qs) + 16 * part, words);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) fn(0, i, Isa::Lookup16(quant::kIq4NlValues, W::And(words[i], 15)));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      fn(0, i + 4, Isa::Lookup16(quant::kIq4NlValues, W::template Field<-4>(words[i], 15)));
    }
  }
};

}  // namespace
}  // namespace strata::compute
