#include "common/quant/decode.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/quant/blocks.h"
#include "common/quant/decode_block.h"
#include "common/quant/float16.h"

namespace strata::quant {
namespace {

template <typename Block>
void DecodeBlocks(const std::byte* row, float* out, int64_t n) {
  const auto* blocks = reinterpret_cast<const Block*>(row);  // packed: any alignment will do
  for (int64_t i = 0; i < n / Block::kWeights; ++i) {
    DecodeBlock(blocks[i], out + i * Block::kWeights);
  }
}

template <typename Number>
void DecodeNumbers(const std::byte* row, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    Number value;
    std::memcpy(&value, row + i * sizeof(Number), sizeof(Number));
    out[i] = static_cast<float>(value);
  }
}

template <float (*ToFloat)(uint16_t)>
void DecodeSmallFloats(const std::byte* row, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, row + i * sizeof(bits), sizeof(bits));
    out[i] = ToFloat(bits);
  }
}

void DecodeFloats(const std::byte* row, float* out, int64_t n) {
  if (n > 0) std::memcpy(out, row, n * sizeof(float));
}

using RowDecoder = void (*)(const std::byte* row, float* out, int64_t n);

RowDecoder DecoderOf(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return DecodeFloats;
    case TensorType::kF16:
      return DecodeSmallFloats<HalfToFloat>;
    case TensorType::kBF16:
      return DecodeSmallFloats<Bf16ToFloat>;
    case TensorType::kF64:
      return DecodeNumbers<double>;
    case TensorType::kI8:
      return DecodeNumbers<int8_t>;
    case TensorType::kI16:
      return DecodeNumbers<int16_t>;
    case TensorType::kI32:
      return DecodeNumbers<int32_t>;
    case TensorType::kI64:
      return DecodeNumbers<int64_t>;
    case TensorType::kQ4_0:
      return DecodeBlocks<BlockQ4_0>;
    case TensorType::kQ4_1:
      return DecodeBlocks<BlockQ4_1>;
    case TensorType::kQ5_0:
      return DecodeBlocks<BlockQ5_0>;
    case TensorType::kQ5_1:
      return DecodeBlocks<BlockQ5_1>;
    case TensorType::kQ8_0:
      return DecodeBlocks<BlockQ8_0>;
    case TensorType::kQ8_1:
      return DecodeBlocks<BlockQ8_1>;
    case TensorType::kQ2_K:
      return DecodeBlocks<BlockQ2_K>;
    case TensorType::kQ3_K:
      return DecodeBlocks<BlockQ3_K>;
    case TensorType::kQ4_K:
      return DecodeBlocks<BlockQ4_K>;
    case TensorType::kQ5_K:
      return DecodeBlocks<BlockQ5_K>;
    case TensorType::kQ6_K:
      return DecodeBlocks<BlockQ6_K>;
    case TensorType::kQ8_K:
      return DecodeBlocks<BlockQ8_K>;
    case TensorType::kIQ1_S:
      return DecodeBlocks<BlockIQ1_S>;
    case TensorType::kIQ1_M:
      return DecodeBlocks<BlockIQ1_M>;
    case TensorType::kIQ2_XXS:
      return DecodeBlocks<BlockIQ2_XXS>;
    case TensorType::kIQ2_XS:
      return DecodeBlocks<BlockIQ2_XS>;
    case TensorType::kIQ2_S:
      return DecodeBlocks<BlockIQ2_S>;
    case TensorType::kIQ3_XXS:
      return DecodeBlocks<BlockIQ3_XXS>;
    case TensorType::kIQ3_S:
      return DecodeBlocks<BlockIQ3_S>;
    case TensorType::kIQ4_NL:
      return DecodeBlocks<BlockIQ4_NL>;
    case TensorType::kIQ4_XS:
      return DecodeBlocks<BlockIQ4_XS>;
    case TensorType::kMXFP4:
      return DecodeBlocks<BlockMXFP4>;
    case TensorType::kNVFP4:
      return DecodeBlocks<BlockNVFP4>;
    case TensorType::kQ1_0:
      return DecodeBlocks<BlockQ1_0>;
    case TensorType::kQ2_0:
      return DecodeBlocks<BlockQ2_0>;
    case TensorType::kTQ1_0:
      return DecodeBlocks<BlockTQ1_0>;
    case TensorType::kTQ2_0:
      return DecodeBlocks<BlockTQ2_0>;
  }
  return nullptr;  // not an enumerator: no default above, so that the compiler misses none
}

}  // namespace

bool CanDecode(TensorType type) { return DecoderOf(type) != nullptr; }

void DecodeRow(TensorType type, const std::byte* row, float* out, int64_t n) {
  const RowDecoder decoder = DecoderOf(type);
  if (decoder == nullptr || n < 0 || n % InfoOf(type).block_values != 0) {
    std::fprintf(stderr, "DecodeRow: tensor type %u cannot decode %lld values\n",
                 static_cast<unsigned>(type), static_cast<long long>(n));
    std::abort();
  }
  decoder(row, out, n);
}

}  // namespace strata::quant
