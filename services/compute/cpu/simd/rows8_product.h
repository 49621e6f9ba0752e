// Products of weights in blocks of 256 whose rows lie interleaved by eight (rows8_formats.h). The
// results are, bit for bit, those of product256.h; panels of them are panel256.h's.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "services/compute/cpu/activations.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/simd/int8_product.h"
#include "services/compute/cpu/simd/panel256.h"
#include "services/compute/cpu/simd/rows8_formats.h"

namespace strata::compute {
namespace {

template <typename Isa, typename Format>
struct Rows8Product {
  using Plain = typename Format::Plain;
  using Block = typename Format::Block;
  using I = typename Isa::I;
  using F = typename Isa::F;
  using Panel = Panel256<Isa, Plain>;
  static constexpr int kLanes = Isa::kLanes;
  static constexpr int kGroups = 256 / Plain::kGroup;
  static constexpr int kSteps = Plain::kGroup / 4;
  static constexpr int kSums = Format::kOddTimes4 ? 2 : 1;
  // With a dot instruction that wants unsigned codes, signed ones are made so.
  static constexpr bool kAdd128 = Isa::kHasDot && Isa::kDotBias == 128 && Plain::kSigned;
  static constexpr int kExcess = kAdd128 ? 128 : Isa::kHasDot ? Plain::kOffset : 0;
  // A group's sum is a 16-bit number: then a product of pairs, the second of them zero, scales it.
  static constexpr bool kShortDots =
      !kAdd128 && Format::kLargest * 127 * Plain::kGroup <= INT16_MAX;

  // ---- scales: what is picked from four bytes a lane ----

  // Of group g, beside a dot product (32 bits) or pair sums (16 bits).
  static I Scale(const I* scales, int g) {
    const auto byte = static_cast<uint32_t>(g % 4);
    const I four = scales[g / 4];
    if constexpr (Isa::kHasDot) {
      if constexpr (!Format::kSignedScales) return Isa::PickBytes(four, 0x80808000 | byte);
      return Isa::template ShiftRightSigned32<24>(Isa::PickBytes(four, 0x00808080 | byte << 24));
    } else {
      if constexpr (!Format::kSignedScales) {
        return Isa::PickBytes(four, 0x80008000 | byte | byte << 16);
      }
      return Isa::template ShiftRightSigned16<8>(
          Isa::PickBytes(four, 0x00800080 | byte << 8 | byte << 24));
    }
  }
  // Of group g, in the lower half of 32 bits, the upper one zero.
  static I ShortScale(const I* scales, int g) {
    if constexpr (!Format::kSignedScales) return Scale(scales, g);
    const auto byte = static_cast<uint32_t>(g % 4);
    return Isa::template ShiftRightSigned16<8>(
        Isa::PickBytes(scales[g / 4], 0x80800080 | byte << 8));
  }
  // Of groups g and g + 1, as 16-bit numbers.
  template <bool kSigned>
  static I Pair(const I* scales, int g) {
    const auto byte = static_cast<uint32_t>(g % 4);
    if constexpr (!kSigned) {
      return Isa::PickBytes(scales[g / 4], 0x80008000 | byte | (byte + 1) << 16);
    } else {
      return Isa::template ShiftRightSigned16<8>(
          Isa::PickBytes(scales[g / 4], 0x00800080 | byte << 8 | (byte + 1) << 24));
    }
  }

  // ---- few rows ----

  template <int kRows>
  static void AddBlock(const InterleavedRows<Isa>& rows, const Int8Row256* x, int64_t b, F* y) {
    const auto block = rows.template At<Block>(b);
    I scales[kGroups / 4];
    I mins[kGroups / 4];
    Format::template Scales<Isa>(block, scales, mins);
    I sum[kSums][kRows];
    for (int r = 0; r < kRows; ++r) {
      for (int s = 0; s < kSums; ++s) sum[s][r] = Isa::Zero();
    }
#pragma GCC unroll 8
    for (int part = 0; part < Format::kParts; ++part) {
      rows.template ReadAhead<Block>(b, part, Format::kParts);
      AddPart<kRows>(block, part, scales, x, b, sum);
    }
    F d;
    F dmin;
    Format::template D<Isa>(block, &d, &dmin);
    for (int r = 0; r < kRows; ++r) {
      I all = sum[0][r];
      if constexpr (kSums == 2) {
        all = Isa::Add(all, Isa::template ShiftRightSigned32<2>(sum[1][r]));  // exact
      }
      if constexpr (Plain::kOffset != 0 && !Isa::kHasDot) {
        const I offset = WeighSums<Format::kSignedScales>(scales, x[r], b);
        all = Isa::Add(all, Isa::Mul(offset, Isa::Set1(-Plain::kOffset)));
      }
      const F dx = Isa::Set1F(x[r].d[b]);
      y[r] = Isa::MulAddF(Isa::MulF(d, dx), Isa::ToFloat(all), y[r]);
      if constexpr (Plain::kMins) {
        const I min = WeighSums<false>(mins, x[r], b);
        y[r] = Isa::NegMulAddF(Isa::MulF(dmin, dx), Isa::ToFloat(min), y[r]);
      }
    }
  }

  // sum_g factor[g] sum_i q_i
  template <bool kSigned>
  static I WeighSums(const I* factors, const Int8Row256& x, int64_t b) {
    const int16_t* sums = Plain::kGroup == 32 ? x.sum32 : x.sum16;
    I sum = Isa::Zero();
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; g += 2) {
      sum = Isa::MulAdd16(Pair<kSigned>(factors, g), Isa::Broadcast(sums + b * kGroups + g), sum);
    }
    return sum;
  }

  template <int kRows>
  [[gnu::always_inline]] static void AddPart(const Rows8Block<Isa, Block>& block, int part,
                                             const I* scales, const Int8Row256* x, int64_t b,
                                             I (*sum)[kRows]) {
    I dot[Format::kSlots][kRows];
    const auto add = [&](int slot, int step, I w) __attribute__((always_inline)) {
      const int first = Format::First(part, slot);
      const int g = first / Plain::kGroup;
      I* to = sum[slot % kSums];
      if constexpr (Isa::kHasDot) {
        if constexpr (kAdd128) w = Isa::Xor(w, Isa::Set1(static_cast<int32_t>(0x80808080)));
        for (int r = 0; r < kRows; ++r) {
          if (step == 0) dot[slot][r] = Isa::Set1(Start(x[r], b * kGroups + g, slot));
          const I q = Isa::Broadcast(x[r].q + b * 256 + first + 4 * step);
          dot[slot][r] = Isa::Dot(dot[slot][r], w, q);
          if (step == kSteps - 1) {
            if constexpr (kShortDots) {
              to[r] = Isa::MulAdd16(dot[slot][r], ShortScale(scales, g), to[r]);
            } else {
              to[r] = Isa::Add(to[r], Isa::Mul(dot[slot][r], Scale(scales, g)));
            }
          }
        }
      } else {
        constexpr int kChain = Format::kHeadroom < kSteps ? Format::kHeadroom : kSteps;
        static_assert(kSteps % kChain == 0);
        const I size = Plain::kSigned ? Isa::Abs8(w) : w;
        for (int r = 0; r < kRows; ++r) {
          I q = Isa::Broadcast(x[r].q + b * 256 + first + 4 * step);
          if constexpr (Plain::kSigned) q = Isa::Sign8(q, w);
          const I pair = Isa::PairDot(size, q);
          dot[slot][r] = step % kChain == 0 ? pair : Isa::Add16(dot[slot][r], pair);
          if (step % kChain == kChain - 1) {
            to[r] = Isa::MulAdd16(dot[slot][r], Scale(scales, g), to[r]);
          }
        }
      }
    };
    Format::template Codes<Isa>(block, part, add);
  }

  // What undoes the codes' excess: minus kExcess times the sum of q.
  static int32_t Start(const Int8Row256& x, int64_t group, int slot) {
    if constexpr (kExcess == 0) {
      return 0;
    } else {
      const int32_t shift = Plain::kGroup == 32 ? x.shift32[group] : x.shift16[group];
      return shift / (128 / kExcess) * (slot % kSums == 0 ? 1 : 4);
    }
  }

  template <int kRows>
  static void FewRows(const InterleavedRows<Isa>& rows, const ProductTile& tile, int o, int first) {
    Int8Row256 x[kRows];
    F y[kRows];
    for (int r = 0; r < kRows; ++r) {
      x[r] = Int8Row256::At(tile.rows[first + r], tile.inputs);
      y[r] = Isa::Set1F(0);
    }
    for (int64_t b = 0; b < tile.inputs / 256; ++b) AddBlock<kRows>(rows, x, b, y);
    for (int r = 0; r < kRows; ++r) {
      Isa::StoreF(tile.out + (first + r) * tile.out_stride + o, y[r]);
    }
  }

  // ---- panels ----

  // The rows of vector v.
  static void Decode(const Rows8Block<Isa, Block>& block, int v, Panel* panel) {
    const int lane = v * kLanes;
    I scales[kGroups / 4];
    I mins[kGroups / 4];
    Format::template Scales<Isa>(block, scales, mins);
    const auto store = [lane](int32_t* to, I x) { *reinterpret_cast<I*>(to + lane) = x; };
    for (int g = 0; g < kGroups; ++g) store(panel->scales[g], Scale(scales, g));
    for (int g = 0; g < kGroups / 2; ++g) {
      if constexpr (Panel::kExcess != 0) {
        panel->PutExcess(g, lane, Pair<Format::kSignedScales>(scales, 2 * g));
      }
      if constexpr (Plain::kMins) store(panel->min_pairs[g], Pair<false>(mins, 2 * g));
    }
    F d;
    F dmin = Isa::Set1F(0);
    Format::template D<Isa>(block, &d, &dmin);
    Isa::StoreF(panel->d + lane, d);
    Isa::StoreF(panel->dmin + lane, dmin);
#pragma GCC unroll 8
    for (int part = 0; part < Format::kParts; ++part) {
      Format::template Codes<Isa>(block, part, [&](int slot, int step, I w) {
        if (Format::kOddTimes4 && slot % 2 != 0) w = Isa::template ShiftRight16<2>(w);
        panel->Put(Format::First(part, slot) / 4 + step, v, w);
      });
    }
  }

  // ---- tiles ----

  static void RunFew(const ProductTile& tile) {
    RunFewRows<Rows8Product, InterleavedRows<Isa>, kLanes>(tile);
  }
  static void RunMany(const ProductTile& tile) {
    auto* panel = reinterpret_cast<Panel*>(tile.scratch);
    const TileRows<Int8Row256> x(tile);
    PanelReadAhead ahead(tile, Panel::kOutputs, sizeof(Block), /*interleaved=*/true);
    for (int o = 0; o < tile.outputs; o += Panel::kOutputs) {
      ClearOutputs<Panel::kOutputs>(tile, o);
      for (int64_t b = 0; b < tile.inputs / 256; ++b) {
        for (int v = 0; v < Panel::kVectors; ++v) {
          const int first = o + v * kLanes;
          const InterleavedRows<Isa> rows(tile, first < tile.outputs ? first : o);
          Decode(rows.template At<Block>(b), v, panel);
        }
        panel->Finish();
        ahead.Begin(tile.weights + o * tile.weight_row_bytes, b * sizeof(Block));
        ForRowPieces<Panel::kPanelRows>(tile.row_count, 0, [&]<int kCount>(int r) {
          ahead(r, kCount, tile.row_count);
          panel->template Multiply<kCount>(x.row + r, b, tile.out + r * tile.out_stride + o,
                                           tile.out_stride);
        });
      }
    }
  }
};

}  // namespace
}  // namespace strata::compute
