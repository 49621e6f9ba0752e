// IQ2_S, IQ1_S and IQ1_M in 512-bit vectors, which hold the eight codebook entries of 64 weights:
// products of few activation rows, and for IQ1 the decoding of panels. The formats are those of
// codebook.h; only the way differs.
//
// With codebooks as large as these, entries are loaded one by one faster than they are looked up in
// registers (vbmi_lookup.h). What limits the products is then the number of instructions, so all
// else is done for a block or for 64 weights at once:
//   - a vector has the block's indices (Parts::Load), and one its scales, from which an instruction
//     picks those of 64 weights;
//   - signs are a mask under which the activations are negated;
//   - pairs of products, at most 2 * 43 * 127, are multiplied by scales and added up in 32 bits by
//     one instruction.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/quant/codebooks.h"
#include "services/compute/cpu/activations.h"
#include "services/compute/cpu/simd/codebook.h"
#include "services/compute/cpu/simd/codebook_formats.h"
#include "services/compute/cpu/simd/iq1_formats.h"
#include "services/compute/cpu/simd/vbmi_lookup.h"

namespace strata::compute {
namespace {

struct Codebook512 {
  static uint64_t Load8(const void* p) {
    uint64_t x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  // In every quadword.
  static __m512i Repeat8(const void* p) {
    return _mm512_set1_epi64(static_cast<int64_t>(Load8(p)));
  }
  // (x & mask) | bits.
  static __m512i AndOr(__m512i x, __m512i mask, __m512i bits) {
    return _mm512_ternarylogic_epi32(x, mask, bits, 0xea);
  }

  // The 32 indices of a block: bytes at `low`, and of every word of `high` what is in `mask`.
  static void StoreIndices(const uint8_t* low, __m512i high, int mask, uint16_t* index) {
    _mm512_store_si512(index, AndOr(high, _mm512_set1_epi16(static_cast<int16_t>(mask)),
                                    _mm512_cvtepu8_epi16(Bytes::Load(low))));
  }

  // Eight entries. One load brings four indices: loads are what there are most of.
  static __m512i Entries(const uint64_t* grid, const uint16_t* index) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(Four(grid, index)), Four(grid, index + 4), 1);
  }

 private:
  static __m256i Four(const uint64_t* grid, const uint16_t* index) {
    const uint64_t four = Load8(index);
    return _mm256_set_m128i(Two(grid, four >> 32 & 0xffff, four >> 48),
                            Two(grid, four & 0xffff, four >> 16 & 0xffff));
  }
  static __m128i Two(const uint64_t* grid, size_t a, size_t b) {
    const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(grid + a));
    return _mm_castpd_si128(
        _mm_loadh_pd(_mm_castsi128_pd(low), reinterpret_cast<const double*>(grid + b)));
  }
};

// Of a format, what is not in codebook.h: Dots(), by which a block is multiplied. Self has
//   Size(i):               64 magnitudes, or codes plus what they exceed theirs by;
//   Negative(block, i):    which codes are negative, if kSigned;
//   Excess(block, x, b):   otherwise, what the excess adds to the dot product, spread over lanes;
//   Scales(block):         all scales, and Scale(scales, i) the words for the pairs of vector i;
//   Codes(block, i):       64 codes, if Decode() is used.
template <typename Self>
struct Parts512 {
  static constexpr int kBatch = kCodebookBatch;

  // For each of kRows activation rows, sum_g s[g] sum_i c_i q_i of block b, spread over lanes.
  template <int kRows, typename Block>
  void Dots(const Block& block, const Int8Row256* x, int64_t b, __m256i* dots) const {
    const auto& self = static_cast<const Self&>(*this);
    const __m512i scales = Self::Scales(block);
    __m512i sum[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512i size = self.Size(i);
      const __m512i scale = Self::Scale(scales, i);
      for (int r = 0; r < kRows; ++r) {
        __m512i q = Vbmi::Load(x[r].q + b * 256 + i * 64);
        if constexpr (Self::kSigned) {
          q = _mm512_mask_sub_epi8(q, Self::Negative(block, i), _mm512_setzero_si512(), q);
        }
        const __m512i pairs = _mm512_maddubs_epi16(size, q);
        sum[r] =
            i == 0 ? _mm512_madd_epi16(pairs, scale) : _mm512_dpwssd_epi32(sum[r], pairs, scale);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      dots[r] =
          _mm256_add_epi32(_mm512_castsi512_si256(sum[r]), _mm512_extracti64x4_epi64(sum[r], 1));
      if constexpr (!Self::kSigned) {
        dots[r] = _mm256_sub_epi32(dots[r], Self::Excess(block, x[r], b));
      }
    }
  }
  // For panels: the codes of four blocks as signed bytes.
  template <typename Block>
  static void Decode(const Block* const* blocks, int8_t (*codes)[256]) {
    Self parts[4];
    for (int p = 0; p < 4; ++p) parts[p].Load(*blocks[p]);
    for (int p = 0; p < 4; ++p) {
      for (int i = 0; i < 4; ++i) {
        _mm512_store_si512(codes[p] + 64 * i, parts[p].Codes(*blocks[p], i));
      }
    }
  }
};

// Scales 2 s + 1 of groups of 16 weights, s of kBits bits: those of 64 weights lie in one of four
// words.
template <int kBits>
struct Scales16 {
  static constexpr int kMask = ((1 << kBits) - 1) << 1;
  // Where group g is read: a bit below its own, so that it comes doubled.
  static constexpr uint8_t Bit(int g) {
    return static_cast<uint8_t>((16 * (g / 4) + kBits * (g % 4) + 63) % 64);
  }

  // Byte i of the doublewords of lane l is the scale of group 4 i + l.
  static __m512i Load(const uint8_t* words) {
    struct Bits {
      alignas(64) uint8_t of[64];
      constexpr Bits() : of() {
        for (int k = 0; k < 64; ++k) of[k] = Bit(k % 4 * 4 + k / 16);
      }
    };
    static constexpr Bits kBit;
    const __m512i fields =
        _mm512_multishift_epi64_epi8(Vbmi::Load(kBit.of), Codebook512::Repeat8(words));
    return Codebook512::AndOr(fields, _mm512_set1_epi8(kMask), _mm512_set1_epi8(1));
  }
  // Byte i of every doubleword, as two words.
  static __m512i Pick(__m512i scales, int i) {
    const __m512i first = _mm512_broadcast_i32x4(
        _mm_set_epi16(-0x7ff4, -0x7ff4, -0x7ff8, -0x7ff8, -0x7ffc, -0x7ffc, -0x8000, -0x8000));
    return _mm512_shuffle_epi8(scales,
                               _mm512_add_epi16(first, _mm512_set1_epi16(static_cast<int16_t>(i))));
  }

  // A word for each group.
  static __m256i Words(const uint8_t* words) {
    struct Bits {
      alignas(32) uint8_t of[32];
      constexpr Bits() : of() {
        for (int g = 0; g < 16; ++g) of[2 * g] = Bit(g);
      }
    };
    static constexpr Bits kBit;
    const __m256i fields = _mm256_multishift_epi64_epi8(
        Bytes::Load(kBit.of), _mm512_castsi512_si256(Codebook512::Repeat8(words)));
    return _mm256_ternarylogic_epi32(fields, _mm256_set1_epi16(kMask), _mm256_set1_epi16(1), 0xea);
  }
};

struct Iq2S512 : FormatIQ2S {
  struct Parts : Parts512<Parts> {
    static constexpr bool kSigned = true;
    alignas(64) uint16_t index[32];
    void Load(const Block& b) {
      // Two bits an index.
      struct Bits {
        alignas(64) uint8_t of[64];
        constexpr Bits() : of() {
          for (int i = 0; i < 32; ++i) of[2 * i + 1] = static_cast<uint8_t>(2 * i);
        }
      };
      static constexpr Bits kBit;
      const __m512i fields =
          _mm512_multishift_epi64_epi8(Vbmi::Load(kBit.of), Codebook512::Repeat8(b.qh));
      Codebook512::StoreIndices(b.qs, fields, 0x300, index);
    }
    __m512i Size(int i) const { return Codebook512::Entries(quant::kIq2SGrid, index + 8 * i); }
    static __mmask64 Negative(const Block& b, int i) {
      return _cvtu64_mask64(Codebook512::Load8(b.qs + 32 + 8 * i));
    }
    static __m512i Scales(const Block& b) { return Scales16<4>::Load(b.scales); }
    static __m512i Scale(__m512i scales, int i) { return Scales16<4>::Pick(scales, i); }
  };
};

// IQ1's codes are 8 grid + shift; these entries are 8 (grid + 1), which exceeds them by 8 - shift.
// Fill() comes before the first product: a constructor would run when a program starts, with this
// file's instructions, on processors without them, too.
struct Iq1Entries {
  alignas(64) static inline uint64_t of[2048];
  static void Fill() {
    for (int i = 0; i < 2048; ++i) {
      // -1, 0, 1 become 0x7f, 0x80, 0x81: no byte borrows from the next.
      of[i] = ((quant::kIq1SGrid[i] ^ 0x8080808080808080) - 0x7f7f7f7f7f7f7f7f) << 3;
    }
  }
};

struct Iq1S512 : FormatIQ1S {
  static void DecodeBlocks(const Block* const* blocks, int8_t (*codes)[256]) {
    Parts::Decode(blocks, codes);
  }
  struct Parts : Parts512<Parts> {
    static constexpr bool kSigned = false;
    alignas(64) uint16_t index[32];
    void Load(const Block& b) {
      // Three bits an index.
      const __m512i fields = Vbmi::Fields(Words(b), 0, 0, 0, 3, 0, 6, 0, 9);
      Codebook512::StoreIndices(b.qs, fields, 0x700, index);
    }
    __m512i Size(int i) const { return Codebook512::Entries(Iq1Entries::of, index + 8 * i); }
    __m512i Codes(const Block& b, int i) const {
      // 8 - shift, 9 where a word's highest bit is set and else 7, in both bytes of it.
      const __m512i down =
          _mm512_and_si512(_mm512_srai_epi16(Words(b), 15), _mm512_set1_epi16(0x0202));
      const __m512i excess = _mm512_add_epi16(down, _mm512_set1_epi16(0x0707));
      return _mm512_sub_epi8(Size(i), Repeat(excess, i));
    }
    static __m512i Scales(const Block& b) {
      return Codebook512::AndOr(_mm512_srli_epi64(Words(b), 11), _mm512_set1_epi16(14),
                                _mm512_set1_epi16(1));
    }
    static __m512i Scale(__m512i scales, int i) { return Repeat(scales, i); }
    static __m256i Excess(const Block& b, const Int8Row256& x, int64_t block) {
      // (2 s + 1) (8 - shift) by the four bits of a group's sign and scale.
      const __m128i products = _mm_setr_epi8(7, 21, 35, 49, 63, 77, 91, 105, 9, 27, 45, 63, 81, 99,
                                             117, static_cast<char>(135));
      const __m128i fields = _mm_srli_epi16(Bytes::Load16(b.qh), 12);
      const __m128i excess =
          _mm_shuffle_epi8(products, _mm_or_si128(fields, _mm_set1_epi16(-0x8000)));
      return _mm256_zextsi128_si256(_mm_madd_epi16(excess, Bytes::Load16(x.sum32 + block * 8)));
    }

   private:
    // The word of group g in quadword g.
    static __m512i Words(const Block& b) { return _mm512_cvtepu16_epi64(Bytes::Load16(b.qh)); }
    // Those of groups 2 i and 2 i + 1, each in half of the result.
    static __m512i Repeat(__m512i words, int i) {
      const __m512i first = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
      return _mm512_permutexvar_epi16(
          _mm512_add_epi16(first, _mm512_set1_epi16(static_cast<int16_t>(8 * i))), words);
    }
  };
};

struct Iq1M512 : FormatIQ1M {
  static void DecodeBlocks(const Block* const* blocks, int8_t (*codes)[256]) {
    Parts::Decode(blocks, codes);
  }
  struct Parts : Parts512<Parts> {
    static constexpr bool kSigned = false;
    alignas(64) uint16_t index[32];
    uint32_t up;  // bit i is set where the shift of entry i is 1
    void Load(const Block& b) {
      // Three bits an index and, above, one that says that its shift is -1.
      const __m512i fields =
          Vbmi::Fields(_mm512_cvtepu16_epi64(Bytes::Load16(b.qh)), 0, 0, 0, 4, 0, 8, 0, 12);
      up = _cvtmask32_u32(_mm512_testn_epi16_mask(fields, _mm512_set1_epi16(0x800)));
      Codebook512::StoreIndices(b.qs, fields, 0x700, index);
    }
    // The codes plus 9.
    __m512i Size(int i) const {
      const __m512i entries = Codebook512::Entries(Iq1Entries::of, index + 8 * i);
      return _mm512_mask_add_epi64(entries, static_cast<__mmask8>(up >> 8 * i), entries,
                                   _mm512_set1_epi8(2));
    }
    __m512i Codes(const Block& /*b*/, int i) const {
      return _mm512_sub_epi8(Size(i), _mm512_set1_epi8(9));
    }
    static __m512i Scales(const Block& b) { return Scales16<3>::Load(b.scales); }
    static __m512i Scale(__m512i scales, int i) { return Scales16<3>::Pick(scales, i); }
    static __m256i Excess(const Block& b, const Int8Row256& x, int64_t block) {
      const __m256i scales = Scales16<3>::Words(b.scales);
      return _mm256_madd_epi16(_mm256_mullo_epi16(scales, _mm256_set1_epi16(9)),
                               Bytes::Load(x.sum16 + block * 16));
    }
  };
};

}  // namespace
}  // namespace strata::compute
