// The i-quants of two and three bits (codebook.h).
#pragma once

#include <cstdint>

#include "common/quant/blocks.h"
#include "common/quant/codebooks.h"
#include "services/compute/cpu/simd/codebook.h"
#include "services/compute/cpu/simd/intrinsics.h"
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

struct FormatIQ2XXS : CodebookFormat {
  using Block = quant::BlockIQ2_XXS;
  static constexpr int kGroup = 32;
  static constexpr int kLargest = 43;
  static __m256 D(const std::byte* const* blocks) { return Codebook::HalvesTimes(blocks, 0.125f); }
  static __m128i Scales(const Block& b) {  // every second word ends in a scale
    return Codebook::TopScales(OddWords(b.qs));
  }
  // Every second word of 64 bytes, from the second on.
  static __m256i OddWords(const void* p) {
    const __m256i low = Bytes::Load(p);
    const __m256i high = Bytes::Load(static_cast<const char*>(p) + 32);
    const __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(
        _mm256_castsi256_ps(low), _mm256_castsi256_ps(high), 0xdd));  // words 1 3 | 1 3 of lanes
    return _mm256_permute4x64_epi64(odd, 0xd8);
  }
  struct Parts : SignedParts<Parts> {
    const uint8_t* index;  // 4 of every 8 bytes
    alignas(32) uint8_t signs[32];
    void Load(const Block& b) {
      index = reinterpret_cast<const uint8_t*>(b.qs);
      const __m256i words = OddWords(b.qs);
      Indices16::Store(signs, Signs8::FromWords(words));
    }
    __m256i Size(int g) const { return Codebook::Entries(quant::kIq2XxsGrid, index + 8 * g); }
    __m256i Sign(int g) const { return Signs8::FromBits(signs + 4 * g); }
  };
};

struct FormatIQ2XS : CodebookFormat {
  using Block = quant::BlockIQ2_XS;
  static constexpr int kGroup = 16;
  static constexpr int kLargest = 43;
  static __m256 D(const std::byte* const* blocks) { return Codebook::HalvesTimes(blocks, 0.125f); }
  static __m128i Scales(const Block& b) {
    return Codebook::OddScales(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b.scales)));
  }
  struct Parts : SignedParts<Parts> {
    alignas(32) uint16_t index[32];
    alignas(32) uint8_t signs[32];
    void Load(const Block& b) {
      const __m256i low = Bytes::Load(b.qs);
      const __m256i high = Bytes::Load(b.qs + 16);
      const __m256i nine = _mm256_set1_epi16(511);
      Indices16::Store(index, _mm256_and_si256(low, nine));
      Indices16::Store(index + 16, _mm256_and_si256(high, nine));
      const __m256i bytes =
          _mm256_packus_epi16(_mm256_srli_epi16(low, 9), _mm256_srli_epi16(high, 9));
      Indices16::Store(signs, Signs8::Even(_mm256_permute4x64_epi64(bytes, 0xd8)));
    }
    __m256i Size(int g) const { return Codebook::Entries(quant::kIq2XsGrid, index + 4 * g); }
    __m256i Sign(int g) const { return Signs8::FromBits(signs + 4 * g); }
  };
};

struct FormatIQ2S : CodebookFormat {
  using Block = quant::BlockIQ2_S;
  static constexpr int kGroup = 16;
  static constexpr int kLargest = 43;
  static __m256 D(const std::byte* const* blocks) { return Codebook::HalvesTimes(blocks, 0.125f); }
  static __m128i Scales(const Block& b) {
    return Codebook::OddScales(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b.scales)));
  }
  struct Parts : SignedParts<Parts> {
    const uint8_t* signs;
    alignas(32) uint16_t index[32];
    void Load(const Block& b) {
      signs = b.qs + 32;
      // Two bits an index: those of four indices in a byte, moved to bits 8 and 9 by factors of
      // 2^8, 2^6, 2^4 and 2^2.
      const __m128i qh = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(b.qh));
      const __m256i left = _mm256_set1_epi64x(0x0004001000400100);
      for (int i = 0; i < 2; ++i) {
        const __m256i high = _mm256_mullo_epi16(Indices16::RepeatBytes<4>(qh, 4 * i), left);
        Indices16::Store(b.qs + 16 * i, _mm256_and_si256(high, _mm256_set1_epi16(0x300)),
                         index + 16 * i);
      }
    }
    __m256i Size(int g) const { return Codebook::Entries(quant::kIq2SGrid, index + 4 * g); }
    __m256i Sign(int g) const { return Signs8::FromBits(signs + 4 * g); }
  };
};

struct FormatIQ3XXS : CodebookFormat {
  using Block = quant::BlockIQ3_XXS;
  static constexpr int kGroup = 32;
  static constexpr int kLargest = 62;
  static __m256 D(const std::byte* const* blocks) { return Codebook::HalvesTimes(blocks, 0.25f); }
  static __m128i Scales(const Block& b) { return Codebook::TopScales(Bytes::Load(b.qs + 64)); }
  struct Parts : SignedParts<Parts> {
    const uint8_t* index;
    alignas(32) uint8_t signs[32];
    void Load(const Block& b) {
      index = b.qs;
      const __m256i words = Bytes::Load(b.qs + 64);
      Indices16::Store(signs, Signs8::FromWords(words));
    }
    __m256i Size(int g) const { return Codebook::Entries(quant::kIq3XxsGrid, index + 8 * g); }
    __m256i Sign(int g) const { return Signs8::FromBits(signs + 4 * g); }
  };
};

struct FormatIQ3S : CodebookFormat {
  using Block = quant::BlockIQ3_S;
  static constexpr int kGroup = 32;
  static constexpr int kLargest = 15;
  static __m256 D(const std::byte* const* blocks) { return Bytes::Halves(blocks, 0); }
  static __m128i Scales(const Block& b) {
    return Codebook::OddScales(_mm_cvtsi32_si128(static_cast<int>(Bytes::Load4(b.scales))));
  }
  struct Parts : SignedParts<Parts> {
    const uint8_t* signs;
    alignas(32) uint16_t index[64];
    void Load(const Block& b) {
      signs = b.signs;
      // A bit of qh is the ninth of an index.
      const __m128i qh = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(b.qh));
      const __m256i bit = _mm256_broadcastsi128_si256(_mm_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128));
      for (int i = 0; i < 4; ++i) {
        const __m256i bits = _mm256_and_si256(Indices16::RepeatBytes<8>(qh, 2 * i), bit);
        const __m256i set = _mm256_cmpeq_epi16(bits, bit);
        Indices16::Store(b.qs + 16 * i, _mm256_and_si256(set, _mm256_set1_epi16(0x100)),
                         index + 16 * i);
      }
    }
    __m256i Size(int g) const { return Codebook::Entries(quant::kIq3SGrid, index + 8 * g); }
    __m256i Sign(int g) const { return Signs8::FromBits(signs + 4 * g); }
  };
};

}  // namespace
}  // namespace strata::compute
