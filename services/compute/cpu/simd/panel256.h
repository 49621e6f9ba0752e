// Panels of weights in blocks of 256: a block of each of kOutputs weight rows, decoded to bytes,
// with a row in each lane, to be multiplied with many activation rows (int8_product.h says what is
// computed).
//
// A dot instruction multiplies unsigned with signed bytes: codes that can be negative are stored
// plus kDotBias, which a term of the activations alone undoes ("shift").
//
// Without one, pairs of such products are summed in 16 bits. Three ways keep codes c unsigned and
// the sums of pairs small; each is undone exactly:
//   c + kExcess    if that is below 128. The excess goes with the activations' sums. Codes that
//                  are stored so by their format (kOffset) stay as they are.
//   |c| and flips  for codes of eight bits: where c is negative, the activation's bits are
//                  flipped, q becomes -q - 1, and |c| (-q - 1) = c q - |c|. What the -|c| of a
//                  block add up to depends on the weights alone: the sum begins with it (`start`).
//                  (vpsignb would do without, but takes one of the two ports that multiply.)
// So many steps of pairs are summed in 16 bits before they are scaled to 32 as fit (kChain).
#pragma once

#include <cstddef>
#include <cstdint>

#include "services/compute/cpu/activations.h"
#include "services/compute/cpu/simd/block_parts.h"
#include "services/compute/cpu/simd/int8_product.h"
#include "services/compute/cpu/simd/lanes8.h"
#include "services/compute/cpu/simd/weight_formats.h"

namespace strata::compute {
namespace {

// Of signed codes, which say how large they get (kLargest), what they are stored plus; 0 if that
// is not how they are stored.
template <typename Format>
constexpr int LiftOf() {
  if constexpr (Format::kSigned) {
    return Format::kLargest < 64 ? Format::kLargest : 0;
  } else {
    return 0;
  }
}

template <typename Isa, typename Format>
struct Panel256 {
  using Block = typename Format::Block;
  using I = typename Isa::I;
  using F = typename Isa::F;
  using Parts = typename PartsOf<Format>::Type;
  static constexpr int kLanes = Isa::kLanes;
  static constexpr int kVectors = Isa::kPanelVectors;
  static constexpr int kOutputs = kVectors * kLanes;
  static constexpr int kGroups = 256 / Format::kGroup;
  static constexpr int kSteps = Format::kGroup / 4;  // four codes of every output, in a group

  // With a dot instruction.
  static constexpr bool kShifted = Isa::kHasDot && (Format::kSigned || Format::kOffset != 0);
  // Without.
  static constexpr bool kFlips = !Isa::kHasDot && Format::kSigned && LiftOf<Format>() == 0;
  static constexpr int kExcess = Isa::kHasDot ? 0 : Format::kOffset + LiftOf<Format>();
  // With either, what is added to codes as the format has them before they are stored.
  static constexpr int kAdd = kShifted ? Isa::kDotBias - Format::kOffset : LiftOf<Format>();
  static constexpr int Chain() {
    int most = 1;  // flipped codes of eight bits, or as the format says
    if constexpr (LiftOf<Format>() != 0) {
      most = INT16_MAX / (2 * 127 * 2 * LiftOf<Format>());
    } else if constexpr (!Format::kSigned) {
      most = Format::kHeadroom;
    }
    int chain = kSteps;
    while (chain > most) chain /= 2;
    return chain;
  }
  static constexpr int kChain = Chain();
  // Activation rows at a time. Where sums of 32 bits are added to in every step, four do not fit
  // sixteen registers.
  static constexpr int kPanelRows = !Isa::kHasDot && kChain == 1 ? 3 : Isa::kPanelRows;

  // Codes, or magnitudes and beside them 255 where the code is negative.
  static constexpr int kPlanes = kFlips ? 2 : 1;
  alignas(64) uint8_t codes[64][kPlanes][kOutputs][4];
  // With a dot instruction the scale; else the scale in both 16-bit halves.
  alignas(64) int32_t scales[kGroups][kOutputs];
  // Of groups 2 g (low half) and 2 g + 1, what the sums of activations are multiplied by: the
  // scale times -kExcess, and the minimum.
  alignas(64) int32_t excess_pairs[kGroups / 2][kOutputs];
  alignas(64) int32_t min_pairs[kGroups / 2][kOutputs];
  alignas(64) int32_t start[kOutputs];
  alignas(64) float d[kOutputs];
  alignas(64) float dmin[kOutputs];

  // ---- decoding ----

  // Block b of the weight rows from number `first` of the tile on.
  void Decode(const ProductTile& tile, int first, int64_t b) {
    for (int lane = 0; lane < kOutputs; lane += 8) {
      const EightRows rows(tile, first + lane);
      DecodeScales(rows, b, lane);
      if constexpr (!kLaneBlocks<Format>) DecodeCodes(rows, b, lane);
    }
    if constexpr (kLaneBlocks<Format>) {
      for (int v = 0; v < kVectors; ++v) {
        Format::DecodeLanes(tile, first + v * kLanes, b,
                            [this, v](int step, I c) { Store(codes[step][0][v * kLanes], c); });
      }
    }
    Finish();
  }
  // Of eight weight rows, to the outputs from number `lane` on.
  void DecodeCodes(const EightRows& rows, int64_t b, int lane) {
    const auto spread = [this, lane](auto code) {
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) {
        __m256i v[8];
        for (int r = 0; r < 8; ++r) v[r] = code(r, g);
        Lanes8::Transpose(v);
        for (int i = 0; i < 8; ++i) PutEight(g * 8 + i, lane, v[i]);
      }
    };
    if constexpr (kWholeBlocks<Format>) {
      alignas(64) int8_t decoded[8][256];
      for (int r = 0; r < 8; r += 4) {
        const Block* four[4];
        for (int p = 0; p < 4; ++p) four[p] = &rows.template At<Block>(r + p, b);
        Format::DecodeBlocks(four, decoded + r);
      }
      spread([&decoded](int r, int g) { return Bytes::Load(decoded[r] + g * 32); });
    } else {
      Parts parts[8];
      for (int r = 0; r < 8; ++r) parts[r].Load(rows.template At<Block>(r, b));
      spread([&parts](int r, int g) { return parts[r].Codes(g); });
    }
  }

  // Codes of step `step` as the format has them: of the outputs of vector v, and of eight outputs.
  void Put(int step, int v, I c) {
    if constexpr (Isa::kHasDot) {
      if constexpr (kAdd != 0) c = Isa::Add8(c, Repeat(kAdd));
      Store(codes[step][0][v * kLanes], c);
    } else {
      PutEight(step, v * kLanes, c);
    }
  }
  void PutEight(int step, int lane, __m256i c) {
    if constexpr (kFlips) {
      Store(codes[step][1][lane], _mm256_cmpgt_epi8(_mm256_setzero_si256(), c));
      c = _mm256_abs_epi8(c);
    } else if constexpr (kAdd != 0) {
      c = _mm256_add_epi8(c, _mm256_set1_epi8(static_cast<char>(kAdd)));
    }
    Store(codes[step][0][lane], c);
  }
  // Of group pair g, from the scales as pairs of 16-bit numbers.
  void PutExcess(int g, int lane, __m256i scale_pairs) {
    Store(excess_pairs[g][lane], _mm256_mullo_epi16(scale_pairs, _mm256_set1_epi16(-kExcess)));
  }
  // When codes and scales are there.
  void Finish() {
    if constexpr (kFlips) {
      static_assert(kSteps == 8);
      for (int lane = 0; lane < kOutputs; lane += 8) {
        __m256i sum = _mm256_setzero_si256();
        for (int g = 0; g < kGroups; ++g) {
          __m256i pairs = _mm256_setzero_si256();
          for (int i = 0; i < kSteps; ++i) {
            const auto& at = codes[g * kSteps + i];
            const __m256i flipped =
                _mm256_and_si256(Bytes::Load(at[0][lane]), Bytes::Load(at[1][lane]));
            pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(flipped, _mm256_set1_epi8(1)));
          }
          sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, Bytes::Load(&scales[g][lane])));
        }
        Store(start[lane], sum);
      }
    }
  }

  // ---- multiplying ----

  // Adds block b of kCount activation rows times the panel to `out`.
  template <int kCount>
  void Multiply(const Int8Row256* x, int64_t b, float* out, int64_t out_stride) const {
    if constexpr (Isa::kHasDot) {
      MultiplyHere<kCount>(x, b, out, out_stride);
    } else {
      MultiplyApart<kCount>(x, b, out, out_stride);
    }
  }

 private:
  // A function of its own: with sixteen registers GCC keeps one of the sums in memory where it
  // inlines this, which then limits all (IQ2_XXS with 32 rows: 53 instead of 82 Gw/s).
  template <int kCount>
  [[gnu::noinline]] void MultiplyApart(const Int8Row256* x, int64_t b, float* out,
                                       int64_t out_stride) const {
    MultiplyHere<kCount>(x, b, out, out_stride);
  }
  template <int kCount>
  void MultiplyHere(const Int8Row256* x, int64_t b, float* out, int64_t out_stride) const {
    I sum[kVectors][kCount];
    const int8_t* q[kCount];
    for (int r = 0; r < kCount; ++r) {
      for (int v = 0; v < kVectors; ++v) sum[v][r] = kFlips ? Vector(start, v) : Isa::Zero();
      q[r] = x[r].q + b * 256;
    }
    for (int g = 0; g < kGroups; ++g) {
      if constexpr (Isa::kHasDot) {
        AddDots<kCount>(g, x, b, q, sum);
      } else {
        // Steps that add to 32 bits each: unrolled, GCC would keep some of the sums in memory.
#pragma GCC unroll 1
        for (int i = 0; i < kSteps; i += kChain) AddPairs<kCount>(g, g * kSteps + i, q, sum);
      }
    }
    if constexpr (kExcess != 0) AddSums<kCount>(excess_pairs, x, b, sum);
    for (int r = 0; r < kCount; ++r) {
      const F dx = Isa::Set1F(x[r].d[b]);
      for (int v = 0; v < kVectors; ++v) {
        float* y = out + r * out_stride + v * kLanes;
        const F scale = Isa::MulF(Isa::LoadF(d + v * kLanes), dx);
        Isa::StoreF(y, Isa::MulAddF(scale, Isa::ToFloat(sum[v][r]), Isa::LoadF(y)));
      }
    }
    if constexpr (Format::kMins) {
      I min[kVectors][kCount];
      for (int v = 0; v < kVectors; ++v) {
        for (int r = 0; r < kCount; ++r) min[v][r] = Isa::Zero();
      }
      AddSums<kCount>(min_pairs, x, b, min);
      for (int r = 0; r < kCount; ++r) {
        const F dx = Isa::Set1F(x[r].d[b]);
        for (int v = 0; v < kVectors; ++v) {
          float* y = out + r * out_stride + v * kLanes;
          const F scale = Isa::MulF(Isa::LoadF(dmin + v * kLanes), dx);
          Isa::StoreF(y, Isa::NegMulAddF(scale, Isa::ToFloat(min[v][r]), Isa::LoadF(y)));
        }
      }
    }
  }
  template <typename To, typename Vector>
  static void Store(To& to, Vector x) {
    *reinterpret_cast<Vector*>(&to) = x;
  }
  static I Repeat(int byte) { return Isa::Set1(static_cast<int32_t>(byte * 0x01010101U)); }
  template <typename T>
  static I Vector(const T* of_outputs, int v) {
    return Isa::Load(of_outputs + v * kLanes);
  }

  // Eight bytes of eight rows as 32-bit lanes.
  static void Spread(const __m128i* bytes, __m256i* to) {
    for (int r = 0; r < 8; ++r) to[r] = _mm256_cvtepi8_epi32(bytes[r]);
    Lanes8::Transpose(to);
  }
  static __m256i Pair(__m256i low, __m256i high) {
    return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
  }
  void DecodeScales(const EightRows& rows, int64_t b, int lane) {
    __m128i s[8];
    __m128i m[8];
    const std::byte* at[8];
    for (int r = 0; r < 8; ++r) {
      const Block& block = rows.template At<Block>(r, b);
      at[r] = reinterpret_cast<const std::byte*>(&block);
      s[r] = Format::Scales(block);
      if constexpr (Format::kMins) m[r] = Format::Mins(block);
    }
    _mm256_store_ps(d + lane, Format::D(at));
    if constexpr (Format::kMins) _mm256_store_ps(dmin + lane, Format::Dmin(at));
    for (int half = 0; half < kGroups / 8; ++half) {
      __m256i scale[8];
      __m256i min[8];
      Spread(s, scale);
      if constexpr (Format::kMins) Spread(m, min);
      for (int g = 0; g < 8; ++g) {
        Store(scales[half * 8 + g][lane], Isa::kHasDot ? scale[g] : Pair(scale[g], scale[g]));
        if (g % 2 != 0) continue;
        const int pair = half * 4 + g / 2;
        if constexpr (kExcess != 0) PutExcess(pair, lane, Pair(scale[g], scale[g + 1]));
        if constexpr (Format::kMins) Store(min_pairs[pair][lane], Pair(min[g], min[g + 1]));
      }
      for (int r = 0; r < 8; ++r) {
        s[r] = _mm_srli_si128(s[r], 8);
        if constexpr (Format::kMins) m[r] = _mm_srli_si128(m[r], 8);
      }
    }
  }

  // sum += s[g] sum_i c_i q_i, with a dot instruction.
  template <int kCount>
  void AddDots(int g, const Int8Row256* x, int64_t b, const int8_t* const* q,
               I (*sum)[kCount]) const {
    I dot[kVectors][kCount];
    for (int r = 0; r < kCount; ++r) {
      I first = Isa::Zero();
      if constexpr (kShifted && Isa::kDotBias != 0) {
        const int32_t* shift = Format::kGroup == 32 ? x[r].shift32 : x[r].shift16;
        first = Isa::Broadcast(shift + b * kGroups + g);
      }
      for (int v = 0; v < kVectors; ++v) dot[v][r] = first;
    }
#pragma GCC unroll 8
    for (int i = 0; i < kSteps; ++i) {
      I w[kVectors];
      for (int v = 0; v < kVectors; ++v) w[v] = Isa::Load(codes[g * kSteps + i][0][v * kLanes]);
      for (int r = 0; r < kCount; ++r) {
        const I four = Isa::Broadcast(q[r] + (g * kSteps + i) * 4);
        for (int v = 0; v < kVectors; ++v) dot[v][r] = Isa::Dot(dot[v][r], w[v], four);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const I scale = Vector(scales[g], v);
      for (int r = 0; r < kCount; ++r) {
        sum[v][r] = Isa::Add(sum[v][r], Isa::Mul(dot[v][r], scale));
      }
    }
  }

  // The same for kChain steps of the group, without one.
  template <int kCount>
  void AddPairs(int g, int step, const int8_t* const* q, I (*sum)[kCount]) const {
    I pairs[kVectors][kCount];
#pragma GCC unroll 8
    for (int i = step; i < step + kChain; ++i) {
      I w[kVectors];
      I flip[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        w[v] = Isa::Load(codes[i][0][v * kLanes]);
        if constexpr (kFlips) flip[v] = Isa::Load(codes[i][1][v * kLanes]);
      }
      for (int r = 0; r < kCount; ++r) {
        const I four = Isa::Broadcast(q[r] + i * 4);
        for (int v = 0; v < kVectors; ++v) {
          const I pair = Isa::PairDot(w[v], kFlips ? Isa::Xor(four, flip[v]) : four);
          pairs[v][r] = i == step ? pair : Isa::Add16(pairs[v][r], pair);
          Isa::Keep(pairs[v][r]);
        }
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const I scale = Vector(scales[g], v);
      for (int r = 0; r < kCount; ++r) sum[v][r] = Isa::MulAdd16(pairs[v][r], scale, sum[v][r]);
    }
  }

  // sum += the groups' factors times their sums of q.
  template <int kCount>
  static void AddSums(const int32_t (*factors)[kOutputs], const Int8Row256* x, int64_t b,
                      I (*sum)[kCount]) {
    for (int g = 0; g < kGroups / 2; ++g) {
      I factor[kVectors];
      for (int v = 0; v < kVectors; ++v) factor[v] = Vector(factors[g], v);
      for (int r = 0; r < kCount; ++r) {
        const int16_t* sums = Format::kGroup == 32 ? x[r].sum32 : x[r].sum16;
        const I two = Isa::Broadcast(sums + b * kGroups + g * 2);
        for (int v = 0; v < kVectors; ++v) {
          sum[v][r] = Isa::MulAdd16(factor[v], two, sum[v][r]);
        }
      }
    }
  }
};

}  // namespace
}  // namespace strata::compute
