// The block layouts of the quantised GGUF tensor types, byte for byte as they lie in a file.
//
// A row of n weights is an array of blocks; a block holds a fixed number of weights (kWeights), at
// least one scale and the codes. Multi-byte fields are little-endian. The structs are packed, so a
// pointer into a mapped file can be used whatever its alignment. Scales named `d` are IEEE half
// precision bits unless a comment says otherwise (float16.h converts them).
//
// Notation below: w[i] is weight i of the block; "low half" and "high half" are the nibbles of a
// byte; x >> s & m binds as (x >> s) & m.
#pragma once

#include <cstdint>

namespace strata::quant {

#pragma pack(push, 1)

// ---- Legacy types: 32 weights, one scale ---------------------------------------------------
// Nibble order of all four 4/5-bit types: byte j holds w[j] in its low and w[j + 16] in its high
// half. In the 5-bit types, bit i of the 32-bit word qh is the fifth (highest) bit of w[i].

struct BlockQ4_0 {  // w = d * (q - 8)
  static constexpr int kWeights = 32;
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

struct BlockQ4_1 {  // w = d * q + m
  static constexpr int kWeights = 32;
  uint16_t d;
  uint16_t m;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

struct BlockQ5_0 {  // w = d * (q - 16)
  static constexpr int kWeights = 32;
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

struct BlockQ5_1 {  // w = d * q + m
  static constexpr int kWeights = 32;
  uint16_t d;
  uint16_t m;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

struct BlockQ8_0 {  // w = d * q
  static constexpr int kWeights = 32;
  uint16_t d;
  int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

struct BlockQ8_1 {  // w = d * q; s = d * sum(q), for products with types that have a minimum
  static constexpr int kWeights = 32;
  uint16_t d;
  uint16_t s;  // half
  int8_t qs[32];
};
static_assert(sizeof(BlockQ8_1) == 36);

// ---- K-quants: 256 weights, groups of 16 or 32 with small integer scales of their own -------

// w = d * (scales[g] & 15) * q - dmin * (scales[g] >> 4), g = i / 16. Each half h of 128 weights
// owns 32 bytes: w[128 h + 32 k + j] = qs[32 h + j] >> 2 k & 3, k < 4, j < 32.
struct BlockQ2_K {
  static constexpr int kWeights = 256;
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d;
  uint16_t dmin;
};
static_assert(sizeof(BlockQ2_K) == 84);

// w = d * (s[g] - 32) * (q - 4), g = i / 16. The low two bits of q as in Q2_K; its bit 2 is bit
// 4 h + k of hmask[j]. The sixteen 6-bit s: low four bits of s[g] in the low (g < 8) or high
// (g >= 8) half of scales[g % 8], high two bits in scales[8 + g % 4] >> 2 (g / 4) & 3.
struct BlockQ3_K {
  static constexpr int kWeights = 256;
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

// w = d * s[g] * q - dmin * m[g], g = i / 32. Each quarter p of 64 weights owns 32 bytes: the low
// halves are w[64 p + j], the high halves w[64 p + 32 + j]. The 6-bit s and m, g < 4:
//   s[g] = scales[g] & 63,      s[g + 4] = (scales[g + 8] & 15) | (scales[g] >> 6) << 4,
//   m[g] = scales[g + 4] & 63,  m[g + 4] = (scales[g + 8] >> 4) | (scales[g + 4] >> 6) << 4.
struct BlockQ4_K {
  static constexpr int kWeights = 256;
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

// As Q4_K with a fifth bit: bit g of qh[j] belongs to w[32 g + j].
struct BlockQ5_K {
  static constexpr int kWeights = 256;
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

// w = d * scales[g] * (q - 32), g = i / 16. In half h of 128 weights, k < 4, j < 32:
//   low four bits of w[128 h + 32 k + j]: ql[64 h + 32 (k % 2) + j] >> 4 (k / 2) & 15,
//   high two bits:                        qh[32 h + j] >> 2 k & 3.
struct BlockQ6_K {
  static constexpr int kWeights = 256;
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

struct BlockQ8_K {  // w = d * q; the format of activations beside K-quants
  static constexpr int kWeights = 256;
  float d;
  int8_t qs[256];
  int16_t bsums[16];  // sums of 16 consecutive q
};
static_assert(sizeof(BlockQ8_K) == 292);

// ---- I-quants: groups of 4 or 8 weights are one entry of a fixed codebook (codebooks.h) ------
// "sign index": 7 bits that stand for 8 signs, bit j set = w[j] negative; the eighth is chosen so
// that the number of negative signs is even.

// Group ib of 32 weights (ib < 8) owns qs[4 ib .. 4 ib + 3], read as two 32-bit words (a, b):
// byte l of a indexes kIq2XxsGrid (8 weights), bits 7 l .. 7 l + 6 of b are its sign index.
// w = d * (0.5 + (b >> 28)) / 4 * grid * sign.
struct BlockIQ2_XXS {
  static constexpr int kWeights = 256;
  uint16_t d;
  uint16_t qs[32];
};
static_assert(sizeof(BlockIQ2_XXS) == 66);

// qs[l] & 511 indexes kIq2XsGrid, qs[l] >> 9 is the sign index. w = d * (0.5 + s) / 4 * grid *
// sign, with s a half of scales[l / 4], the low one for l % 4 < 2.
struct BlockIQ2_XS {
  static constexpr int kWeights = 256;
  uint16_t d;
  uint16_t qs[32];
  uint8_t scales[8];
};
static_assert(sizeof(BlockIQ2_XS) == 74);

// Like IQ2_XS, with index qs[l] | (qh[l / 4] >> 2 (l % 4) & 3) << 8 into kIq2SGrid and eight full
// sign bits in qs[32 + l].
struct BlockIQ2_S {
  static constexpr int kWeights = 256;
  uint16_t d;
  uint8_t qs[64];
  uint8_t qh[8];
  uint8_t scales[8];
};
static_assert(sizeof(BlockIQ2_S) == 82);

// qs[0..63] index kIq3XxsGrid (4 weights each); qs[64..95] are eight 32-bit words, one per 32
// weights: four sign indices from bit 0 up, scale s in the top four bits.
// w = d * (0.5 + s) / 2 * grid * sign.
struct BlockIQ3_XXS {
  static constexpr int kWeights = 256;
  uint16_t d;
  uint8_t qs[96];
};
static_assert(sizeof(BlockIQ3_XXS) == 98);

// Index qs[i] | (qh[i / 8] >> (i % 8) & 1) << 8 into kIq3SGrid (4 weights), signs[k] for weights
// 8 k .. 8 k + 7, s the half of scales for each 32 weights (low half first).
// w = d * (1 + 2 s) * grid * sign.
struct BlockIQ3_S {
  static constexpr int kWeights = 256;
  uint16_t d;
  uint8_t qs[64];
  uint8_t qh[8];
  uint8_t signs[32];
  uint8_t scales[4];
};
static_assert(sizeof(BlockIQ3_S) == 110);

// Group ib of 32 weights: index qs[4 ib + l] | (qh[ib] >> 3 l & 7) << 8 into kIq1SGrid (8 weights
// of -1, 0, 1), scale s = qh[ib] >> 12 & 7, shift c = -1/8 if qh[ib] >> 15 else 1/8.
// w = d * (2 s + 1) * (grid + c).
struct BlockIQ1_S {
  static constexpr int kWeights = 256;
  uint16_t d;
  uint8_t qs[32];
  uint16_t qh[8];
};
static_assert(sizeof(BlockIQ1_S) == 50);

// As IQ1_S, with finer scales and a shift per 8 weights. Group l of 8 weights: t = half l % 2 of
// qh[l / 2]; index qs[l] | (t & 7) << 8, shift -1/8 if t & 8. Scales are four 16-bit words:
// s of weights 16 g .. 16 g + 15 is word[g / 4] >> 3 (g % 4) & 7, and the top four
// bits of words 0, 1, 2, 3 are the four nibbles (lowest first) of the half-precision d.
struct BlockIQ1_M {
  static constexpr int kWeights = 256;
  uint8_t qs[32];
  uint8_t qh[16];
  uint8_t scales[8];
};
static_assert(sizeof(BlockIQ1_M) == 56);

// w = d * kIq4NlValues[q]; nibbles as in Q4_0.
struct BlockIQ4_NL {
  static constexpr int kWeights = 32;
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

// Eight groups of 32 weights, nibbles within a group as in Q4_0. w = d * (s - 32) *
// kIq4NlValues[q], s = (scales_l[g / 2] >> 4 (g % 2) & 15) | (scales_h >> 2 g & 3) << 4.
struct BlockIQ4_XS {
  static constexpr int kWeights = 256;
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

// ---- Four-bit floating point (E2M1: 0, .5, 1, 1.5, 2, 3, 4, 6 and a sign bit) ----------------

struct BlockMXFP4 {  // w = 2^(e - 127) * e2m1(q); nibbles as in Q4_0 (w[j], w[j + 16])
  static constexpr int kWeights = 32;
  uint8_t e;
  uint8_t qs[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

// Four groups g of 16 weights: w = ue4m3(d[g]) * e2m1(q); within a group byte j (of 8) holds w[j]
// in its low and w[j + 8] in its high half.
struct BlockNVFP4 {
  static constexpr int kWeights = 64;
  uint8_t d[4];
  uint8_t qs[32];
};
static_assert(sizeof(BlockNVFP4) == 36);

// ---- One and two bits ------------------------------------------------------------------------

struct BlockQ1_0 {  // w[i] = bit i % 8 of qs[i / 8] ? d : -d
  static constexpr int kWeights = 128;
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ1_0) == 18);

struct BlockQ2_0 {  // w[i] = d * ((qs[i / 4] >> 2 (i % 4) & 3) - 1)
  static constexpr int kWeights = 64;
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ2_0) == 18);

// w = d * (t - 1) with t a base-3 digit. A byte b holds five digits as the fraction b / 256 (digit
// n is (b * 3^n mod 256) * 3 / 256 rounded down). The first 160 weights: w[32 n + j] = digit n of
// qs[j]; the next 80: w[160 + 16 n + j] = digit n of qs[32 + j]; the last 16: w[240 + 4 n + j] =
// digit n (< 4) of qh[j].
struct BlockTQ1_0 {
  static constexpr int kWeights = 256;
  uint8_t qs[48];
  uint8_t qh[4];
  uint16_t d;
};
static_assert(sizeof(BlockTQ1_0) == 54);

struct BlockTQ2_0 {  // w[128 h + 32 k + j] = d * ((qs[32 h + j] >> 2 k & 3) - 1)
  static constexpr int kWeights = 256;
  uint8_t qs[64];
  uint16_t d;
};
static_assert(sizeof(BlockTQ2_0) == 66);

#pragma pack(pop)

}  // namespace strata::quant
