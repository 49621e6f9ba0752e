// How product256.h reads the codes of a block.
#pragma once

#include "services/compute/cpu/simd/int8_product.h"
#include "services/compute/cpu/simd/intrinsics.h"

namespace strata::compute {
namespace {

// A format that decodes the blocks of four weight rows at a time, whole, for panels.
template <typename Format>
inline constexpr bool kWholeBlocks = requires {
  &Format::DecodeBlocks;
};

// A format that decodes blocks with a weight row in each lane (codebook_lanes.h), for panels.
template <typename Format>
inline constexpr bool kLaneBlocks = requires {
  Format::kInLanes;
};

// The interface of Format::Parts (codebook.h) for a format without, whose vectors of codes are read
// one after the other.
template <typename Format>
struct PlainParts {
  static constexpr bool kSigned = Format::kSigned;
  static constexpr int kBatch = 1;
  const typename Format::Block* block;
  void Load(const typename Format::Block& b) { block = &b; }
  __m256i Codes(int g) const { return Format::Codes(*block, g); }
  __m256i Size(int g) const { return SizeOf<Format>(Codes(g)); }
  __m256i Sign(int g) const { return Codes(g); }
};
template <typename Format>
struct PartsOf {
  using Type = PlainParts<Format>;
};
template <typename Format>
requires requires { typename Format::Parts; }
struct PartsOf<Format> {
  using Type = typename Format::Parts;
};

}  // namespace
}  // namespace strata::compute
