#include "common/quant/encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/quant/blocks.h"
#include "common/quant/encode_block.h"
#include "common/quant/float16.h"

#include "absl/strings/str_cat.h"

namespace strata::quant {
namespace {

template <typename Block>
void EncodeBlocks(const float* x, int64_t n, std::byte* out) {
  for (int64_t i = 0; i < n / Block::kWeights; ++i) {
    Block block;
    EncodeBlock(x + i * Block::kWeights, &block);
    std::memcpy(out + i * sizeof(Block), &block, sizeof(Block));
  }
}

template <uint16_t (*FromFloat)(float)>
void EncodeSmallFloats(const float* x, int64_t n, std::byte* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = FromFloat(x[i]);
    std::memcpy(out + i * sizeof(bits), &bits, sizeof(bits));
  }
}

void EncodeFloats(const float* x, int64_t n, std::byte* out) {
  if (n > 0) std::memcpy(out, x, n * sizeof(float));
}

struct Encoder {
  void (*encode)(const float* x, int64_t n, std::byte* out) = nullptr;
  float limit = 0;  // largest magnitude of a weight whose codes and scales do not overflow
};

Encoder EncoderOf(TensorType type) {
  // A block's scale is a half (at most 65504) and the largest weight gets about the largest code,
  // or in superblocks the largest code times the largest integer scale. Taken with a wide margin:
  // real weights stay far below.
  constexpr float kHalf = 65504;
  switch (type) {
    case TensorType::kF32:
      return {EncodeFloats, INFINITY};
    case TensorType::kF16:
      return {EncodeSmallFloats<FloatToHalf>, kHalf};
    case TensorType::kBF16:
      return {EncodeSmallFloats<FloatToBf16>, 0x1.fep127F};
    case TensorType::kQ4_0:
      return {EncodeBlocks<BlockQ4_0>, kHalf};
    case TensorType::kQ8_0:
      return {EncodeBlocks<BlockQ8_0>, kHalf};
    case TensorType::kQ2_K:
      return {EncodeBlocks<BlockQ2_K>, kHalf};
    case TensorType::kQ3_K:
      return {EncodeBlocks<BlockQ3_K>, kHalf};
    case TensorType::kQ4_K:
      return {EncodeBlocks<BlockQ4_K>, kHalf};
    case TensorType::kQ5_K:
      return {EncodeBlocks<BlockQ5_K>, kHalf};
    case TensorType::kQ6_K:
      return {EncodeBlocks<BlockQ6_K>, kHalf};
    case TensorType::kIQ4_NL:
      return {EncodeBlocks<BlockIQ4_NL>, kHalf};
    case TensorType::kIQ4_XS:
      return {EncodeBlocks<BlockIQ4_XS>, kHalf};
    case TensorType::kMXFP4:
      return {EncodeBlocks<BlockMXFP4>, kHalf};
    default:
      return {};
  }
}

}  // namespace

bool CanEncode(TensorType type) { return EncoderOf(type).encode != nullptr; }

absl::Status EncodeRow(TensorType type, const float* x, int64_t n, std::byte* out) {
  const Encoder encoder = EncoderOf(type);
  if (encoder.encode == nullptr) {
    const TensorTypeInfo* info = FindTensorType(static_cast<uint32_t>(type));
    return absl::UnimplementedError(
        absl::StrCat("cannot quantise to ", info != nullptr ? A(info->name) : "an unknown type",
                     "; possible: f32 f16 bf16 q8_0 q4_0 q2_K q3_K q4_K q5_K q6_K iq4_nl iq4_xs "
                     "mxfp4"));
  }
  const TensorTypeInfo& info = InfoOf(type);
  if (n < 0 || n % info.block_values != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a row of ", n, " values is no multiple of ",
                                                   info.block_values, ", the block of ",
                                                   A(info.name)));
  }
  const float* bad = std::find_if(
      x, x + n, [&](float v) { return !(std::abs(v) <= encoder.limit) || std::isinf(v); });
  if (bad != x + n) {
    return absl::InvalidArgumentError(absl::StrCat("value ", *bad, " at position ", bad - x,
                                                   " of a row cannot be stored as ", A(info.name)));
  }
  encoder.encode(x, n, out);
  return absl::OkStatus();
}

}  // namespace strata::quant
