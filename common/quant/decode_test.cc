// Decoding against llama.cpp's own decoder, bit for bit.
#include "common/quant/decode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/quant/blocks.h"
#include "common/quant/float16.h"
#include "tests/oracle/llama_library.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace strata::quant {
namespace {

using oracle::LlamaLibrary;
using ::testing::ElementsAre;

// The types that llama.cpp can decode. The others are plain numbers and formats of activations,
// with tests of their own below.
std::vector<TensorTypeInfo> TypesOfLlama() {
  using enum TensorType;
  constexpr TensorType kOthers[] = {kF32, kF64, kI8, kI16, kI32, kI64, kQ8_1, kQ8_K};
  std::vector<TensorTypeInfo> types;
  for (const TensorTypeInfo& type : AllTensorTypes()) {
    if (std::ranges::find(kOthers, type.type) == std::end(kOthers)) types.push_back(type);
  }
  return types;
}

// Equal bits, or both NaN (x86 and ours may keep another payload).
bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

class DecodeAgainstLlama : public ::testing::TestWithParam<TensorTypeInfo> {
 protected:
  void SetUp() override {
    llama_ = LlamaLibrary::Get();
    if (llama_ == nullptr) GTEST_SKIP() << LlamaLibrary::WhyMissing();
    to_float_ = llama_->TypeTraits(static_cast<uint32_t>(GetParam().type)).to_float;
    ASSERT_NE(to_float_, nullptr);
  }

  void ExpectSame(const std::vector<std::byte>& row) {
    const TensorTypeInfo& type = GetParam();
    const int64_t n = row.size() / type.block_bytes * type.block_values;
    std::vector<float> ours(n, -1.0F);
    std::vector<float> theirs(n, -2.0F);
    DecodeRow(type.type, row.data(), ours.data(), n);
    to_float_(row.data(), theirs.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_TRUE(Same(ours[i], theirs[i]))
          << "block " << i / type.block_values << " weight " << i % type.block_values << ": "
          << ours[i] << " instead of " << theirs[i];
    }
  }

  const LlamaLibrary* llama_ = nullptr;
  void (*to_float_)(const void*, float*, int64_t) = nullptr;
};

TEST_P(DecodeAgainstLlama, HasTheSameBlocks) {
  const auto& theirs = llama_->TypeTraits(static_cast<uint32_t>(GetParam().type));
  EXPECT_EQ(theirs.name, GetParam().name);
  EXPECT_EQ(theirs.block_values, GetParam().block_values);
  EXPECT_EQ(theirs.block_bytes, GetParam().block_bytes);
}

// Random bytes: every code meets every kind of scale, among them infinities, NaN and denormals
// (one random half in 32 each).
TEST_P(DecodeAgainstLlama, RandomBytes) {
  std::mt19937_64 random(20240601 + static_cast<uint32_t>(GetParam().type));
  std::vector<std::byte> row(size_t{4096} * GetParam().block_bytes);
  for (std::byte& b : row) b = static_cast<std::byte>(random());
  ExpectSame(row);
}

// Each byte of a block in turn takes all its 256 values, over a background that makes ordinary
// numbers of any 16-bit or 8-bit scale (0x3c3c: about 1.06 as a half).
TEST_P(DecodeAgainstLlama, EveryValueOfEveryByte) {
  const uint32_t block_bytes = GetParam().block_bytes;
  std::vector<std::byte> row(size_t{256} * block_bytes);
  for (uint32_t position = 0; position < block_bytes; ++position) {
    std::fill(row.begin(), row.end(), std::byte{0x3c});
    for (int value = 0; value < 256; ++value) {
      row[size_t{block_bytes} * value + position] = static_cast<std::byte>(value);
    }
    ExpectSame(row);
  }
}

// Pairs of equal extreme halves at every even position, so that each scale is met whatever its
// place in the block.
TEST_P(DecodeAgainstLlama, ExtremeScales) {
  constexpr std::array<uint16_t, 14> kExtreme = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff,
                                                 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00,
                                                 0x7c01, 0x7e00, 0xfe00, 0xffff};
  const uint32_t block_bytes = GetParam().block_bytes;
  std::mt19937_64 random(7);
  for (uint32_t position = 0; position + 2 <= block_bytes; ++position) {
    std::vector<std::byte> row(kExtreme.size() * block_bytes);
    for (std::byte& b : row) b = static_cast<std::byte>(random() & 0x3f);
    for (size_t i = 0; i < kExtreme.size(); ++i) {
      std::memcpy(row.data() + i * block_bytes + position, &kExtreme[i], 2);
    }
    ExpectSame(row);
  }
}

// A mapped file gives no promise about alignment.
TEST_P(DecodeAgainstLlama, OddAddress) {
  const TensorTypeInfo& type = GetParam();
  std::mt19937_64 random(11);
  std::vector<std::byte> aligned(size_t{8} * type.block_bytes);
  for (std::byte& b : aligned) b = static_cast<std::byte>(random());
  std::vector<std::byte> shifted(aligned.size() + 1);
  std::copy(aligned.begin(), aligned.end(), shifted.begin() + 1);
  const int64_t n = int64_t{8} * type.block_values;
  std::vector<float> a(n);
  std::vector<float> b(n);
  DecodeRow(type.type, aligned.data(), a.data(), n);
  DecodeRow(type.type, shifted.data() + 1, b.data(), n);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), Same));
}

INSTANTIATE_TEST_SUITE_P(AllTypes, DecodeAgainstLlama, ::testing::ValuesIn(TypesOfLlama()),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(Decode, KnowsEveryTypeOfTheTable) {
  for (const TensorTypeInfo& type : AllTensorTypes())
    EXPECT_TRUE(CanDecode(type.type)) << type.name;
  EXPECT_FALSE(CanDecode(static_cast<TensorType>(4)));
  EXPECT_FALSE(CanDecode(static_cast<TensorType>(1000)));
}

// What llama.cpp has no decoder for.
TEST(Decode, PlainNumbers) {
  const float f32[] = {1.5F, -0.0F, std::numeric_limits<float>::denorm_min()};
  const double f64[] = {0.1, 1e300, -2.0};
  const int8_t i8[] = {-128, 0, 127};
  const int16_t i16[] = {-32768, 3, 32767};
  const int32_t i32[] = {-5, 0, 16777217};
  const int64_t i64[] = {-1, 0, int64_t{1} << 40};
  const auto decode = [](TensorType type, const auto& numbers) {
    std::vector<float> out(3);
    DecodeRow(type, std::as_bytes(std::span(numbers)).data(), out.data(), 3);
    return out;
  };
  EXPECT_THAT(decode(TensorType::kF32, f32), ElementsAre(f32[0], f32[1], f32[2]));
  EXPECT_THAT(decode(TensorType::kF64, f64), ElementsAre(0.1F, INFINITY, -2.0F));
  EXPECT_THAT(decode(TensorType::kI8, i8), ElementsAre(-128, 0, 127));
  EXPECT_THAT(decode(TensorType::kI16, i16), ElementsAre(-32768, 3, 32767));
  EXPECT_THAT(decode(TensorType::kI32, i32), ElementsAre(-5, 0, 16777216));
  EXPECT_THAT(decode(TensorType::kI64, i64), ElementsAre(-1, 0, 0x1p40F));
}

TEST(Decode, Q8TypesOfActivations) {
  BlockQ8_1 q81{};
  BlockQ8_K q8k{};
  q81.d = FloatToHalf(0.5F);
  q8k.d = 0.25F;
  for (int i = 0; i < 32; ++i) q81.qs[i] = static_cast<int8_t>(i - 16);
  for (int i = 0; i < 256; ++i) q8k.qs[i] = static_cast<int8_t>(i - 128);
  std::array<float, 256> out{};
  DecodeRow(TensorType::kQ8_1, reinterpret_cast<const std::byte*>(&q81), out.data(), 32);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], 0.5F * static_cast<float>(i - 16));
  DecodeRow(TensorType::kQ8_K, reinterpret_cast<const std::byte*>(&q8k), out.data(), 256);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(out[i], 0.25F * static_cast<float>(i - 128));
}

TEST(DecodeDeathTest, RefusesPartialBlocksAndUnknownTypes) {
  std::array<std::byte, 64> row{};
  std::array<float, 64> out{};
  EXPECT_DEATH(DecodeRow(TensorType::kQ8_0, row.data(), out.data(), 31), "cannot decode 31 values");
  EXPECT_DEATH(DecodeRow(static_cast<TensorType>(99), row.data(), out.data(), 32), "type 99");
}

}  // namespace
}  // namespace strata::quant
