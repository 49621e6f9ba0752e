// Quality of the quantiser, measured with the decoder and against llama.cpp's quantiser.
#include "common/quant/encode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/quant/decode.h"
#include "tests/oracle/llama_library.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace strata::quant {
namespace {

using ::testing::HasSubstr;

constexpr TensorType kQuantised[] = {TensorType::kQ8_0, TensorType::kQ4_0,   TensorType::kQ2_K,
                                     TensorType::kQ3_K, TensorType::kQ4_K,   TensorType::kQ5_K,
                                     TensorType::kQ6_K, TensorType::kIQ4_NL, TensorType::kIQ4_XS,
                                     TensorType::kMXFP4};

std::vector<float> Normal(int64_t n, uint64_t seed, float deviation = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

std::vector<std::byte> Encode(TensorType type, const std::vector<float>& x) {
  std::vector<std::byte> row(*RowBytes(type, x.size()));
  const absl::Status status = EncodeRow(type, x.data(), static_cast<int64_t>(x.size()), row.data());
  EXPECT_TRUE(status.ok()) << status;
  return row;
}

std::vector<float> Decode(TensorType type, const std::vector<std::byte>& row, size_t n) {
  std::vector<float> x(n);
  DecodeRow(type, row.data(), x.data(), static_cast<int64_t>(n));
  return x;
}

// Root mean square of the difference.
double Rms(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

class EncodeType : public ::testing::TestWithParam<TensorType> {};

std::string TypeName(const ::testing::TestParamInfo<TensorType>& type) {
  return std::string(NameOf(type.param));
}

INSTANTIATE_TEST_SUITE_P(Types, EncodeType, ::testing::ValuesIn(kQuantised), TypeName);

// Both quantisers on the same weights, both results through our decoder (which decode_test compares
// with llama.cpp's): ours may be at most 3 % worse.
void ExpectAsGoodAsLlama(TensorType type, const std::vector<float>& x) {
  const oracle::LlamaLibrary* llama = oracle::LlamaLibrary::Get();
  if (llama == nullptr) GTEST_SKIP() << oracle::LlamaLibrary::WhyMissing();
  const auto n = static_cast<int64_t>(x.size());
  const double ours = Rms(x, Decode(type, Encode(type, x), x.size()));
  const double theirs =
      Rms(x, Decode(type, llama->Quantize(static_cast<uint32_t>(type), x.data(), n), x.size()));
  EXPECT_GT(theirs, 0);
  EXPECT_LE(ours, 1.03 * theirs);
  ::testing::Test::RecordProperty("error_to_llama", std::to_string(ours / theirs));
}

TEST_P(EncodeType, NormalWeights) { ExpectAsGoodAsLlama(GetParam(), Normal(64 * 4096, 42)); }

TEST_P(EncodeType, SmallWeights) { ExpectAsGoodAsLlama(GetParam(), Normal(16 * 4096, 43, 0.02F)); }

TEST_P(EncodeType, HeavyTails) {
  std::vector<float> x = Normal(16 * 4096, 1);
  for (float& v : x) v = v * v * v;
  ExpectAsGoodAsLlama(GetParam(), x);
}

TEST_P(EncodeType, Outliers) {
  std::vector<float> x = Normal(16 * 4096, 2);
  for (size_t i = 0; i < x.size(); i += 97) x[i] *= 20;
  ExpectAsGoodAsLlama(GetParam(), x);
}

TEST_P(EncodeType, PositiveOnly) {
  std::vector<float> x = Normal(16 * 4096, 3);
  for (float& v : x) v = std::abs(v) + 1;
  ExpectAsGoodAsLlama(GetParam(), x);
}

TEST_P(EncodeType, QuantisedWeightsComeBack) {
  // These cannot always tell the codes of a group that does not use its whole range.
  const bool nearly = GetParam() == TensorType::kQ2_K || GetParam() == TensorType::kQ3_K ||
                      GetParam() == TensorType::kQ4_K || GetParam() == TensorType::kQ5_K;
  const std::vector<float> x = Normal(16 * 4096, 5);
  const std::vector<float> once = Decode(GetParam(), Encode(GetParam(), x), x.size());
  const std::vector<float> twice = Decode(GetParam(), Encode(GetParam(), once), x.size());
  if (nearly) {
    EXPECT_LE(Rms(once, twice), 0.05 * Rms(x, once));
  } else {
    EXPECT_EQ(once, twice);
  }
}

TEST_P(EncodeType, WeightsThatLlamaQuantisedComeBack) {
  const oracle::LlamaLibrary* llama = oracle::LlamaLibrary::Get();
  if (llama == nullptr) GTEST_SKIP() << oracle::LlamaLibrary::WhyMissing();
  const std::vector<float> x = Normal(4 * 4096, 6);
  const std::vector<float> once = Decode(
      GetParam(),
      llama->Quantize(static_cast<uint32_t>(GetParam()), x.data(), static_cast<int64_t>(x.size())),
      x.size());
  const std::vector<float> twice = Decode(GetParam(), Encode(GetParam(), once), x.size());
  EXPECT_LE(Rms(once, twice), 0.05 * Rms(x, once));
}

TEST_P(EncodeType, ZerosStayZero) {
  const std::vector<float> zeros(512, 0.0F);
  EXPECT_EQ(Decode(GetParam(), Encode(GetParam(), zeros), 512), zeros);
}

// No magnitude that a type accepts may produce an infinity, NaN or an error larger than the
// weights.
TEST_P(EncodeType, EveryMagnitude) {
  for (float magnitude :
       {1e-45F, 1e-38F, 1e-30F, 1e-20F, 1e-12F, 1e-8F, 1e-6F, 1e-4F, 1e4F, 6e4F}) {
    std::vector<float> x = Normal(1024, 9);
    for (float& v : x) v = std::clamp(v * 0.25F, -1.0F, 1.0F) * magnitude;
    const std::vector<float> back = Decode(GetParam(), Encode(GetParam(), x), x.size());
    const std::vector<float> zeros(x.size(), 0.0F);
    EXPECT_LE(Rms(x, back), Rms(x, zeros) * 1.0001) << magnitude;
  }
}

TEST_P(EncodeType, ConstantAndSingleWeights) {
  for (const float value : {1.0F, -3.0F}) {
    const std::vector<float> same(256, value);
    EXPECT_LE(Rms(same, Decode(GetParam(), Encode(GetParam(), same), 256)), 0.01) << value;
    std::vector<float> one(256, 0.0F);
    one[77] = value;
    EXPECT_LE(Rms(one, Decode(GetParam(), Encode(GetParam(), one), 256)), 0.01) << value;
  }
}

TEST_P(EncodeType, BlocksAreIndependent) {
  const std::vector<float> x = Normal(1024, 10);
  const std::vector<std::byte> all = Encode(GetParam(), x);
  const std::vector<std::byte> tail = Encode(GetParam(), {x.begin() + 512, x.end()});
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), all.begin() + all.size() / 2));
}

TEST(Encode, FloatsAreRounded) {
  const std::vector<float> x = {1.0F, -0.1F, 3e-8F, 65504.0F};
  EXPECT_EQ(Decode(TensorType::kF32, Encode(TensorType::kF32, x), 4), x);
  EXPECT_EQ(Decode(TensorType::kF16, Encode(TensorType::kF16, x), 4),
            (std::vector<float>{1.0F, -0.0999755859375F, 0x1p-25F * 2, 65504.0F}));
  EXPECT_EQ(Decode(TensorType::kBF16, Encode(TensorType::kBF16, x), 4)[3], 65536.0F);
}

TEST(Encode, RefusesWhatItCannotStore) {
  std::vector<std::byte> out(1024);
  std::vector<float> x(256, 1.0F);
  const auto error = [&](TensorType type, int64_t n) {
    return std::string(EncodeRow(type, x.data(), n, out.data()).message());
  };
  EXPECT_THAT(error(TensorType::kQ4_K, 128), HasSubstr("128 values is no multiple of 256"));
  EXPECT_THAT(error(TensorType::kIQ1_S, 256), HasSubstr("cannot quantise to iq1_s; possible: f32"));
  x[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error(TensorType::kQ8_0, 256), HasSubstr("value nan at position 3"));
  x[3] = -INFINITY;
  for (const TensorType type : {TensorType::kF32, TensorType::kBF16, TensorType::kF16}) {
    EXPECT_THAT(error(type, 256), HasSubstr("value -inf at position 3"));
  }
  x[3] = 1e5F;
  EXPECT_THAT(error(TensorType::kF16, 256), HasSubstr("cannot be stored as f16"));
  EXPECT_THAT(error(TensorType::kQ6_K, 256), HasSubstr("cannot be stored as q6_K"));
  EXPECT_EQ(error(TensorType::kBF16, 256), "");
}

}  // namespace
}  // namespace strata::quant
