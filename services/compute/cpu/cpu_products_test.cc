// MatMul and ExpertFfn of every weight type on every instruction set of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numeric>
#include <set>
#include <string>

#include "common/quant/weight_layout.h"
#include "services/compute/cpu/test_backends.h"
#include "services/compute/cpu/test_tensors.h"

namespace strata::compute {
namespace {

using testing::Decoded;
using testing::DoubleDot;
using testing::IsWeightType;
using testing::MakeBackend;
using testing::MakeTensor;
using testing::Owned;
using testing::RandomFloats;
using testing::RandomWeights;

constexpr TensorType kF32 = TensorType::kF32;

std::vector<TensorTypeInfo> WeightTypes() {
  std::vector<TensorTypeInfo> types;
  for (const TensorTypeInfo& info : AllTensorTypes()) {
    if (IsWeightType(info.type)) types.push_back(info);
  }
  return types;
}

// The largest error that rounding activations to int8 may cause in sum_i w_i x_i: half a step of
// each block, d / 2 = max|x| / 254, times |w_i|. Blocks are at most 256 wide.
double QuantisationBound(const std::vector<float>& w, const float* x) {
  double bound = 0;
  for (size_t begin = 0; begin < w.size(); begin += 256) {
    const size_t end = std::min(w.size(), begin + 256);
    double max = 0;
    double sum = 0;
    for (size_t i = begin; i < end; ++i) {
      max = std::max(max, std::abs(static_cast<double>(x[i])));
      sum += std::abs(static_cast<double>(w[i]));
    }
    bound += max / 254 * sum;
  }
  return bound;
}

// Where the float scales of the formats with int8 products lie.
struct Int8Format {
  TensorType type;
  int block;      // of the activations
  int d_at;       // offset of the scale in a block of the weights
  int min_at;     // of the minimum's factor; -1: none
  int unit = 1;   // what makes integers of weights with d = 1
  int group = 0;  // weights that share a float scale; 0: as many as share the activations'
  int Group() const { return group > 0 ? group : block; }
};
constexpr Int8Format kInt8Formats[] = {
    {TensorType::kQ2_K, 256, 80, 82},      {TensorType::kQ3_K, 256, 108, -1},
    {TensorType::kQ4_K, 256, 0, 2},        {TensorType::kQ5_K, 256, 0, 2},
    {TensorType::kQ6_K, 256, 208, -1},     {TensorType::kIQ4_XS, 256, 0, -1},
    {TensorType::kQ4_0, 32, 0, -1},        {TensorType::kQ4_1, 32, 0, 2},
    {TensorType::kQ5_0, 32, 0, -1},        {TensorType::kQ5_1, 32, 0, 2},
    {TensorType::kQ8_0, 32, 0, -1},        {TensorType::kIQ4_NL, 32, 0, -1},
    {TensorType::kMXFP4, 32, 0, -1},       {TensorType::kIQ2_XXS, 256, 0, -1, 8},
    {TensorType::kIQ2_XS, 256, 0, -1, 8},  {TensorType::kIQ2_S, 256, 0, -1, 8},
    {TensorType::kIQ3_XXS, 256, 0, -1, 4}, {TensorType::kIQ3_S, 256, 0, -1},
    {TensorType::kIQ1_S, 256, 0, -1, 8},   {TensorType::kIQ1_M, 256, 0, -1, 8},
    {TensorType::kTQ2_0, 256, 64, -1},     {TensorType::kQ2_0, 32, 0, -1},
    {TensorType::kNVFP4, 32, 0, -1, 1, 16}};

// Weights with the scale and the minimum's factor of every block replaced.
Owned WithScales(const Owned& w, const Int8Format& format, float d, float min) {
  Owned out = w;
  const uint32_t block_bytes = InfoOf(format.type).block_bytes;
  for (size_t at = 0; at < out.memory.size(); at += block_bytes) {
    if (format.type == TensorType::kMXFP4) {
      out.memory[at] = static_cast<std::byte>(128 + std::ilogb(d));  // half of the scale is d
      continue;
    }
    if (format.type == TensorType::kNVFP4) {  // four scales; half of them is d
      const auto scale = static_cast<std::byte>((8 + std::ilogb(d)) << 3);
      std::fill_n(out.memory.begin() + static_cast<ptrdiff_t>(at), 4, scale);
      continue;
    }
    const uint16_t d_bits = quant::FloatToHalf(d);
    if (format.type == TensorType::kIQ1_M) {  // in the top nibbles of its last four words
      for (int i = 0; i < 4; ++i) {
        std::byte& high = out.memory[at + 49 + 2 * i];
        high = (high & std::byte{0x0f}) | static_cast<std::byte>((d_bits >> 4 * i & 15) << 4);
      }
      continue;
    }
    std::memcpy(out.memory.data() + at + format.d_at, &d_bits, 2);
    if (format.min_at < 0) continue;
    const uint16_t min_bits = quant::FloatToHalf(min);
    std::memcpy(out.memory.data() + at + format.min_at, &min_bits, 2);
  }
  return out;
}

// Weights with all minima set to zero.
Owned WithoutMinima(const Owned& w) {
  Owned out = w;
  for (const Int8Format& format : kInt8Formats) {
    if (format.type != w.tensor.type || format.min_at < 0) continue;
    for (size_t at = 0; at < out.memory.size(); at += InfoOf(format.type).block_bytes) {
      std::memset(out.memory.data() + at + format.min_at, 0, 2);
    }
  }
  return out;
}

// The scalar kernels use float activations.
std::vector<std::string> SimdIsas() {
  std::vector<std::string> isas = testing::AvailableIsas();
  std::erase(isas, "scalar");
  return isas;
}

class Products : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Isa, Products, ::testing::ValuesIn(testing::AvailableIsas()),
                         testing::IsaName);

// Against double precision on the decoded weights. Float arithmetic may add n roundings of 2^-24
// relative to the sum of magnitudes; int8 activations add QuantisationBound. Both are worst cases:
// the typical error is checked too, against the standard deviation of the rounding.
TEST_P(Products, MatchDoublePrecision) {
  const auto backend = MakeBackend(GetParam(), 2);
  for (const TensorTypeInfo& info : WeightTypes()) {
    const int64_t block = info.block_values;
    for (const int64_t cols : {block, block * 3, (block + 1023) / block * block}) {
      const Owned w = RandomWeights(info.type, 45, cols, 1);
      const Owned x = RandomFloats(9, cols, 2);
      const Owned out = MakeTensor(kF32, 9, 45);
      backend->MatMul(x.tensor, {&w.tensor, 1}, {}, {&out.tensor, 1}, false);
      double error_squares = 0;
      double variance = 0;
      for (int64_t o = 0; o < 45; ++o) {
        const std::vector<float> row = Decoded(w, o);
        for (int64_t t = 0; t < 9; ++t) {
          const DoubleDot dot = testing::Dot(row, x.Row(t));
          const double rounding = dot.magnitude * cols * 0x1p-24;
          const double bound = QuantisationBound(row, x.Row(t));
          const double error = out.Row(t)[o] - dot.value;
          ASSERT_LE(std::abs(error), bound * 1.001 + rounding)
              << info.name << " cols " << cols << " row " << t << " output " << o;
          error_squares += error * error;
          variance += bound * bound / 3 / cols + rounding * rounding;
        }
      }
      EXPECT_LE(error_squares, 4 * variance) << info.name << " cols " << cols;
    }
  }
}

TEST_P(Products, FloatWeightsAreExactToRounding) {
  const auto backend = MakeBackend(GetParam(), 1);
  for (const TensorType type : {kF32, TensorType::kF16, TensorType::kBF16}) {
    for (const int64_t cols : {1, 5, 16, 31, 100, 1025}) {
      const Owned w = RandomWeights(type, 7, cols, 3);
      const Owned x = RandomFloats(6, cols, 4);
      const Owned out = MakeTensor(kF32, 6, 7);
      backend->MatMul(x.tensor, {&w.tensor, 1}, {}, {&out.tensor, 1}, false);
      for (int64_t o = 0; o < 7; ++o) {
        const std::vector<float> row = Decoded(w, o);
        for (int64_t t = 0; t < 6; ++t) {
          const DoubleDot dot = testing::Dot(row, x.Row(t));
          EXPECT_NEAR(out.Row(t)[o], dot.value, dot.magnitude * (cols / 4.0 + 8) * 0x1p-24)
              << NameOf(type) << " cols " << cols;
        }
      }
    }
  }
}

// The contract of backend.h: one row at a time, all at once, any number of threads: the same bits.
TEST_P(Products, RowsAreIndependent) {
  constexpr int64_t kRows = 70;
  constexpr int64_t kOutputs = 67;  // two tiles, neither whole
  for (const TensorTypeInfo& info : WeightTypes()) {
    const int64_t cols = std::max<int64_t>(2 * info.block_values, 96);
    const Owned w = RandomWeights(info.type, kOutputs, cols, 5);
    const Owned x = RandomFloats(kRows, cols, 6);
    const Owned single = MakeTensor(kF32, kRows, kOutputs);
    const auto one = MakeBackend(GetParam(), 1);
    for (int64_t t = 0; t < kRows; ++t) {
      const Tensor out = single.tensor.Rows(t, 1);
      one->MatMul(x.tensor.Rows(t, 1), {&w.tensor, 1}, {}, {&out, 1}, false);
    }
    for (const int threads : {1, 2, 3}) {
      const auto backend = MakeBackend(GetParam(), threads);
      // Every number of rows; the scalar kernels have one way for all of them, and are slow.
      const int64_t step = GetParam() == "scalar" ? 23 : 1;
      for (int64_t count = threads > 1 ? kRows : 2; count <= kRows; count += step) {
        const int64_t first = (kRows - count) / 2;
        const Owned out = MakeTensor(kF32, count, kOutputs);
        backend->MatMul(x.tensor.Rows(first, count), {&w.tensor, 1}, {}, {&out.tensor, 1}, false);
        const std::byte* expected = single.tensor.Rows(first, count).data;
        ASSERT_EQ(std::memcmp(out.memory.data(), expected, out.memory.size()), 0)
            << info.name << " rows " << first << " + " << count << " threads " << threads;
      }
    }
  }
}

TEST_P(Products, SeveralWeightsBiasAndAccumulation) {
  const auto backend = MakeBackend(GetParam(), 2);
  const int64_t cols = 512;
  const std::vector<Owned> weights = {RandomWeights(TensorType::kQ4_K, 40, cols, 7),
                                      RandomWeights(TensorType::kQ8_0, 33, cols, 8),
                                      RandomWeights(kF32, 70, cols, 9)};
  const Owned x = RandomFloats(5, cols, 10);
  const Owned bias = RandomFloats(1, 33, 11);
  std::vector<Tensor> ws;
  std::vector<Tensor> separate;
  std::vector<Tensor> together;
  std::vector<Owned> memory;
  for (const Owned& w : weights) {
    ws.push_back(w.tensor);
    memory.push_back(MakeTensor(kF32, 5, w.tensor.rows));
    separate.push_back(memory.back().tensor);
    memory.push_back(RandomFloats(5, w.tensor.rows, 12));
    together.push_back(memory.back().tensor);
    backend->MatMul(x.tensor, {&ws.back(), 1}, {}, {&separate.back(), 1}, false);
  }
  const std::vector<Owned> before = {RandomFloats(5, 40, 12), RandomFloats(5, 33, 12),
                                     RandomFloats(5, 70, 12)};
  const std::vector<Tensor> biases = {Tensor{}, bias.tensor, Tensor{}};
  for (const bool accumulate : {true, false}) {
    backend->MatMul(x.tensor, ws, biases, together, accumulate);
    for (size_t i = 0; i < ws.size(); ++i) {
      for (int64_t t = 0; t < 5; ++t) {
        for (int64_t o = 0; o < ws[i].rows; ++o) {
          float expected = reinterpret_cast<const float*>(separate[i].Rows(t, 1).data)[o];
          if (i == 1) expected += bias.Row(0)[o];
          if (accumulate) expected = before[i].Row(t)[o] + expected;
          EXPECT_EQ(reinterpret_cast<const float*>(together[i].Rows(t, 1).data)[o], expected);
        }
      }
    }
  }
}

// Weights whose rows lie interleaved, by the caller or since LoadWeight made them so, are the same
// weights; also where an instruction set has no kernels for them.
TEST_P(Products, LayoutDoesNotMatter) {
  constexpr int64_t kOutputs = 72;  // a whole tile and eight more
  const auto backend = MakeBackend(GetParam(), 2);
  for (const TensorTypeInfo& info : AllTensorTypes()) {
    if (!IsWeightType(info.type) || info.block_values == 1) continue;
    const int64_t cols = std::max<int64_t>(2 * info.block_values, 64);
    const Owned plain = RandomWeights(info.type, kOutputs, cols, 13);
    Owned interleaved = plain;
    interleaved.tensor.layout = quant::WeightLayout::kRows8;
    quant::InterleaveRows(info.type, kOutputs, plain.tensor.row_bytes, plain.memory.data(),
                          interleaved.memory.data());
    const auto loaded = backend->LoadWeight(plain.memory, info.type, kOutputs, cols);
    ASSERT_TRUE(loaded.ok());
    for (const int rows : {1, 3, 4, 70}) {
      const Owned x = RandomFloats(rows, cols, 14);
      const Owned want = MakeTensor(kF32, rows, kOutputs);
      backend->MatMul(x.tensor, {&plain.tensor, 1}, {}, {&want.tensor, 1}, false);
      for (const Tensor& weight : {interleaved.tensor, *loaded}) {
        const Owned got = MakeTensor(kF32, rows, kOutputs);
        backend->MatMul(x.tensor, {&weight, 1}, {}, {&got.tensor, 1}, false);
        ASSERT_EQ(got.memory, want.memory) << info.name << ", " << rows << " rows";
      }
    }
    const std::vector<int32_t> ids = {0, 71, 13};
    const Owned embedded = MakeTensor(kF32, 3, cols);
    backend->EmbedRows(interleaved.tensor, ids, embedded.tensor);
    for (size_t t = 0; t < ids.size(); ++t) {
      EXPECT_EQ(testing::Decoded(plain, ids[t]),
                std::vector<float>(embedded.Row(t), embedded.Row(t) + cols));
    }
  }
}

// Blocks at the edges of their format: all zero, all bits set, largest and denormal scales. The
// result must be what the decoded weights give; only blocks whose scale is not finite are exempt.
TEST_P(Products, ExtremeBlocks) {
  const auto backend = MakeBackend(GetParam(), 1);
  for (const TensorTypeInfo& info : WeightTypes()) {
    const int64_t cols = info.block_values * 2;
    for (const int fill : {0x00, 0xff, 0x80, 0x7f, 0x01, 0x55, 0x7b}) {
      Owned w = MakeTensor(info.type, 9, cols);
      std::fill(w.memory.begin(), w.memory.end(), static_cast<std::byte>(fill));
      for (const float magnitude : {1.0f, 1e-20f, 0.0f}) {
        Owned x = RandomFloats(3, cols, 13);
        for (int64_t i = 0; i < 3 * cols; ++i) x.Row(0)[i] *= magnitude;
        const Owned out = MakeTensor(kF32, 3, 9);
        backend->MatMul(x.tensor, {&w.tensor, 1}, {}, {&out.tensor, 1}, false);
        const std::vector<float> row = Decoded(w, 4);
        const std::vector<float> scale_part = Decoded(WithoutMinima(w), 4);
        if (!std::all_of(row.begin(), row.end(), [](float v) { return std::isfinite(v); })) {
          continue;
        }
        for (int64_t t = 0; t < 3; ++t) {
          const DoubleDot dot = testing::Dot(row, x.Row(t));
          if (dot.magnitude > FLT_MAX) continue;
          // 2^-149: float's smallest step, where tiny scales meet tiny activations. Scale and
          // minimum may cancel in the weight, but are rounded separately in the product.
          const double parts = testing::Dot(scale_part, x.Row(t)).magnitude;
          const double bound = QuantisationBound(row, x.Row(t)) * 1.001 +
                               (dot.magnitude + 2 * parts) * cols * 0x1p-24 + cols * 0x1p-149;
          EXPECT_NEAR(out.Row(t)[4], dot.value, bound) << info.name << " fill " << fill;
          EXPECT_EQ(out.Row(t)[4], out.Row(t)[8]);
        }
      }
    }
  }
}

// A row that is not finite spoils itself and nothing else.
TEST_P(Products, NotANumberStaysInItsRow) {
  const auto backend = MakeBackend(GetParam(), 1);
  for (const TensorType type : {kF32, TensorType::kQ4_K, TensorType::kQ8_0, TensorType::kIQ3_S}) {
    const Owned w = RandomWeights(type, 40, 512, 14);
    Owned x = RandomFloats(9, 512, 15);
    const Owned clean = MakeTensor(kF32, 9, 40);
    const Owned spoilt = MakeTensor(kF32, 9, 40);
    backend->MatMul(x.tensor, {&w.tensor, 1}, {}, {&clean.tensor, 1}, false);
    x.Row(4)[17] = NAN;
    x.Row(4)[300] = INFINITY;
    backend->MatMul(x.tensor, {&w.tensor, 1}, {}, {&spoilt.tensor, 1}, false);
    for (int64_t t = 0; t < 9; ++t) {
      if (t == 4) continue;
      EXPECT_TRUE(testing::SameBits(clean.Row(t), spoilt.Row(t), 40)) << t;
    }
  }
}

// Of the group that weight i of the row belongs to.
float ScaleAt(const Owned& w, const Int8Format& format, int64_t row, int64_t weight, int at) {
  const TensorTypeInfo& info = InfoOf(format.type);
  const std::byte* p =
      w.tensor.data + row * w.tensor.row_bytes + weight / info.block_values * info.block_bytes + at;
  if (format.type == TensorType::kNVFP4) {
    return quant::Ue4m3ToHalfScale(static_cast<uint8_t>(p[weight % info.block_values / 16]));
  }
  if (format.type == TensorType::kMXFP4) return quant::E8m0ToHalfScale(static_cast<uint8_t>(*p));
  uint16_t bits = 0;
  if (format.type == TensorType::kIQ1_M) {
    for (int i = 0; i < 4; ++i) bits |= static_cast<int>(p[49 + 2 * i]) >> 4 << 4 * i;
  } else {
    std::memcpy(&bits, p, 2);
  }
  return quant::HalfToFloat(bits) / static_cast<float>(format.unit);
}

// The definition in simd/int8_product.h, step by step. Setting the float scales of a block to one
// (or to zero) makes the decoder show the integers behind the weights.
class Int8Products : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Isa, Int8Products, ::testing::ValuesIn(SimdIsas()), testing::IsaName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Int8Products);

TEST_P(Int8Products, MatchTheirDefinitionBitForBit) {
  const auto backend = MakeBackend(GetParam(), 1);
  constexpr int64_t kCols = 768;
  constexpr int64_t kOutputs = 37;
  for (const Int8Format& format : kInt8Formats) {
    const Owned w = RandomWeights(format.type, kOutputs, kCols, 30);
    const Owned codes = WithScales(w, format, 1, 0);
    const Owned minima = format.min_at >= 0 ? WithScales(w, format, 0, 1) : Owned();
    const Owned x = RandomFloats(11, kCols, 31);
    Owned out = MakeTensor(kF32, 11, kOutputs);
    backend->MatMul(x.tensor, {&w.tensor, 1}, {}, {&out.tensor, 1}, false);
    for (int64_t t = 0; t < 11; ++t) {
      std::vector<float> d(kCols / format.block);
      std::vector<int> q(kCols);
      for (int64_t b = 0; b < kCols / format.block; ++b) {
        const float* values = x.Row(t) + b * format.block;
        float largest = 0;
        for (int i = 0; i < format.block; ++i) largest = std::max(largest, std::abs(values[i]));
        d[b] = largest / 127.0f;
        const float inverse = 127.0f / largest;
        for (int i = 0; i < format.block; ++i) {
          q[b * format.block + i] = static_cast<int>(std::nearbyint(values[i] * inverse));
        }
      }
      for (int64_t o = 0; o < kOutputs; ++o) {
        const std::vector<float> c = Decoded(codes, o);
        const std::vector<float> m = format.min_at >= 0 ? Decoded(minima, o) : c;
        float expected = 0;
        for (int64_t first = 0; first < kCols; first += format.Group()) {
          int64_t dot = 0;
          int64_t min_dot = 0;
          for (int64_t i = first; i < first + format.Group(); ++i) {
            dot += static_cast<int64_t>(c[i] * static_cast<float>(format.unit)) * q[i];
            min_dot += static_cast<int64_t>(m[i]) * q[i];
          }
          const float dx = d[first / format.block];
          const float scale = ScaleAt(w, format, o, first, format.d_at) * dx;
          expected = std::fma(scale, static_cast<float>(dot), expected);
          if (format.min_at >= 0) {
            const float min = ScaleAt(w, format, o, first, format.min_at) * dx;
            expected = std::fma(min, static_cast<float>(min_dot), expected);
          }
        }
        ASSERT_EQ(out.Row(t)[o], expected) << NameOf(format.type) << " row " << t << " out " << o;
      }
    }
  }
}

struct FfnCase {
  TensorType up;
  TensorType down;
};

// A feed-forward block of `experts` experts and a routing of `tokens` tokens to `k` of them.
struct Moe {
  std::vector<Owned> memory;
  std::vector<FfnWeights> experts;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<int32_t>> outputs;

  std::vector<ExpertTask> Tasks() const {
    std::vector<ExpertTask> tasks;
    for (size_t e = 0; e < experts.size(); ++e) {
      tasks.push_back({experts[e], tokens[e], outputs[e]});
    }
    return tasks;
  }
};

Moe MakeMoe(FfnCase types, int experts, int64_t hidden, int64_t ff, int tokens, int k) {
  Moe moe;
  const auto add = [&](TensorType type, int64_t rows, int64_t cols, uint32_t seed) {
    moe.memory.push_back(RandomWeights(type, rows, cols, seed));
    return moe.memory.back().tensor;
  };
  for (int e = 0; e < experts; ++e) {
    moe.experts.push_back({add(types.up, ff, hidden, 100 + 3 * e),
                           add(types.up, ff, hidden, 101 + 3 * e),
                           add(types.down, hidden, ff, 102 + 3 * e)});
  }
  moe.tokens.resize(experts);
  moe.outputs.resize(experts);
  for (int t = 0; t < tokens; ++t) {
    for (int j = 0; j < k; ++j) {
      const int expert = (t * 5 + j * (t % 3 + 1)) % experts;
      moe.tokens[expert].push_back(t);
      moe.outputs[expert].push_back(t * k + j);
    }
  }
  return moe;
}

TEST_P(Products, ExpertsAreTheirThreeProducts) {
  for (const FfnCase types : {FfnCase{TensorType::kQ4_K, TensorType::kQ6_K}, FfnCase{kF32, kF32},
                              FfnCase{TensorType::kQ8_0, TensorType::kMXFP4}}) {
    const Moe moe = MakeMoe(types, 6, 256, 512, 40, 2);
    Owned x = RandomFloats(40, 256, 20);
    for (int64_t i = 0; i < 40 * 256; ++i) x.Row(0)[i] *= 0.1f;
    const auto backend = MakeBackend(GetParam(), 2);
    const Owned out = MakeTensor(kF32, 80, 256);
    backend->ExpertFfn(x.tensor, moe.Tasks(), out.tensor);
    for (size_t e = 0; e < moe.experts.size(); ++e) {
      for (size_t i = 0; i < moe.tokens[e].size(); ++i) {
        const Tensor row = x.tensor.Rows(moe.tokens[e][i], 1);
        const Owned gate = MakeTensor(kF32, 1, 512);
        const Owned up = MakeTensor(kF32, 1, 512);
        const Owned expected = MakeTensor(kF32, 1, 256);
        backend->MatMul(row, {&moe.experts[e].gate, 1}, {}, {&gate.tensor, 1}, false);
        backend->MatMul(row, {&moe.experts[e].up, 1}, {}, {&up.tensor, 1}, false);
        backend->SwiGlu(gate.tensor, up.tensor, gate.tensor);
        backend->MatMul(gate.tensor, {&moe.experts[e].down, 1}, {}, {&expected.tensor, 1}, false);
        ASSERT_TRUE(testing::SameBits(out.Row(moe.outputs[e][i]), expected.Row(0), 256))
            << "expert " << e << " pair " << i;
      }
    }
  }
}

TEST_P(Products, ExpertsDoNotDependOnTheLayout) {
  for (const FfnCase types : {FfnCase{TensorType::kQ4_K, TensorType::kQ2_K},
                              FfnCase{TensorType::kMXFP4, TensorType::kQ6_K}}) {
    Moe moe = MakeMoe(types, 6, 256, 512, 40, 2);
    const Owned x = RandomFloats(40, 256, 22);
    const auto backend = MakeBackend(GetParam(), 2);
    const Owned want = MakeTensor(kF32, 80, 256);
    backend->ExpertFfn(x.tensor, moe.Tasks(), want.tensor);
    std::vector<std::vector<std::byte>> interleaved;
    for (FfnWeights& expert : moe.experts) {
      for (Tensor* weight : {&expert.gate, &expert.up, &expert.down}) {
        auto& to = interleaved.emplace_back(weight->rows * weight->row_bytes);
        quant::InterleaveRows(weight->type, weight->rows, weight->row_bytes, weight->data,
                              to.data());
        weight->data = to.data();
        weight->layout = quant::WeightLayout::kRows8;
      }
    }
    const Owned got = MakeTensor(kF32, 80, 256);
    backend->ExpertFfn(x.tensor, moe.Tasks(), got.tensor);
    EXPECT_EQ(got.memory, want.memory) << NameOf(types.up) << ", " << NameOf(types.down);
  }
}

TEST_P(Products, ExpertRowsAreIndependent) {
  const Moe all = MakeMoe({TensorType::kQ4_K, TensorType::kQ4_K}, 5, 256, 256, 60, 2);
  const Owned x = RandomFloats(60, 256, 21);
  const Owned expected = MakeTensor(kF32, 120, 256);
  MakeBackend(GetParam(), 1)->ExpertFfn(x.tensor, all.Tasks(), expected.tensor);
  for (const int threads : {1, 2, 3}) {
    const auto backend = MakeBackend(GetParam(), threads);
    const Owned out = MakeTensor(kF32, 120, 256);
    for (size_t e = 0; e < all.experts.size(); ++e) {
      for (size_t i = 0; i < all.tokens[e].size(); ++i) {
        const ExpertTask task{all.experts[e], {&all.tokens[e][i], 1}, {&all.outputs[e][i], 1}};
        backend->ExpertFfn(x.tensor, {&task, 1}, out.tensor);
      }
    }
    EXPECT_EQ(out.memory, expected.memory);
  }
}

}  // namespace
}  // namespace strata::compute
