// The GPU kernels, run on the CPU through the executor, against scalar references in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/quant/blocks.h"
#include "common/quant/decode.h"
#include "common/quant/float16.h"
#include "services/compute/gpu/device.h"
#include "services/compute/gpu/launch.h"

namespace strata::compute::gpu {
namespace {

using simt::Schedule;
using ::testing::StrEq;

// A tensor with memory of exactly its size, so that the address sanitizer sees any step beyond.
struct Owned {
  std::unique_ptr<std::byte[]> memory;
  Tensor tensor;

  float* Floats(int64_t row) const {
    return reinterpret_cast<float*>(tensor.data + static_cast<size_t>(row) * tensor.row_bytes);
  }
  int32_t* Ints(int64_t row) const { return reinterpret_cast<int32_t*>(Floats(row)); }
};

Owned Make(TensorType type, int64_t rows, int64_t cols, size_t extra_row_bytes = 0) {
  Owned out;
  const size_t row_bytes = RowBytes(type, static_cast<uint64_t>(cols)).value() + extra_row_bytes;
  const size_t bytes = row_bytes * static_cast<size_t>(rows);
  out.memory = std::make_unique<std::byte[]>(bytes);
  std::memset(out.memory.get(), 0xff, bytes);  // NaN where nothing is written
  out.tensor = {type, rows, cols, row_bytes, out.memory.get()};
  return out;
}

bool SameBits(const float* a, const float* b, int64_t n) {
  return std::equal(a, a + n, b, [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

class KernelsTest : public ::testing::TestWithParam<Schedule> {
 protected:
  KernelsTest() { SimtDevice().set_schedule(GetParam()); }

  Owned RandomFloats(int64_t rows, int64_t cols, size_t extra_row_bytes = 0) {
    std::normal_distribution<float> normal;
    Owned out = Make(TensorType::kF32, rows, cols, extra_row_bytes);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) out.Floats(r)[c] = normal(random_);
    }
    return out;
  }

  // Random codes; scales are halves of ordinary size, both signs.
  Owned RandomWeights(TensorType type, int64_t rows, int64_t cols, size_t extra_row_bytes = 0) {
    Owned out = Make(type, rows, cols, extra_row_bytes);
    const TensorTypeInfo& info = InfoOf(type);
    for (int64_t r = 0; r < rows; ++r) {
      std::byte* row = out.tensor.data + static_cast<size_t>(r) * out.tensor.row_bytes;
      for (int64_t b = 0; b < cols / info.block_values; ++b, row += info.block_bytes) {
        for (uint32_t i = 0; i < info.block_bytes; ++i) row[i] = static_cast<std::byte>(random_());
        const uint16_t scales[2] = {RandomHalf(), RandomHalf()};
        // d of Q8_0; d and dmin of Q4_K.
        std::memcpy(row, scales, type == TensorType::kQ4_K ? 4 : 2);
      }
    }
    return out;
  }

  uint16_t RandomHalf() {
    return quant::FloatToHalf(std::uniform_real_distribution<float>(-0.02F, 0.02F)(random_));
  }

  std::mt19937_64 random_{7};
};

TEST_P(KernelsTest, RmsNormMatchesDouble) {
  constexpr float kEps = 1e-5F;
  for (const int64_t cols : {1, 31, 32, 100, 256, 257, 1000, 4096}) {
    SCOPED_TRACE(cols);
    const Owned x = RandomFloats(3, cols, /*extra_row_bytes=*/8);
    const Owned weight = RandomFloats(1, cols);
    const Owned out = Make(TensorType::kF32, 3, cols, /*extra_row_bytes=*/12);
    ASSERT_EQ(RmsNorm(x.tensor, weight.tensor, kEps, out.tensor, nullptr), nullptr);
    for (int64_t t = 0; t < 3; ++t) {
      double squares = 0;
      for (int64_t i = 0; i < cols; ++i) squares += double{x.Floats(t)[i]} * x.Floats(t)[i];
      const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + double{kEps});
      for (int64_t i = 0; i < cols; ++i) {
        const double expected = x.Floats(t)[i] * scale * weight.Floats(0)[i];
        ASSERT_NEAR(out.Floats(t)[i], expected, std::abs(expected) * 1e-6) << t << " " << i;
      }
    }
    ASSERT_EQ(RmsNorm(x.tensor, weight.tensor, kEps, x.tensor, nullptr), nullptr);
    for (int64_t t = 0; t < 3; ++t) {
      EXPECT_TRUE(SameBits(x.Floats(t), out.Floats(t), cols)) << "in place";
    }
  }
}

struct MatVecCase {
  TensorType type;
  std::vector<int64_t> inputs;
};

TEST_P(KernelsTest, MatVecMatchesDecodedWeights) {
  const MatVecCase cases[] = {{TensorType::kQ8_0, {32, 96, 128, 160, 256, 1056}},
                              {TensorType::kQ4_K, {256, 512, 1280}}};
  for (const auto& [type, all_inputs] : cases) {
    for (const int64_t inputs : all_inputs) {
      for (const int64_t outputs : {1, 8, 21}) {
        SCOPED_TRACE(testing::Message() << NameOf(type) << " " << inputs << " -> " << outputs);
        const Owned weight = RandomWeights(type, outputs, inputs, /*extra_row_bytes=*/16);
        const Owned x = RandomFloats(2, inputs, /*extra_row_bytes=*/16);
        const Owned bias = RandomFloats(1, outputs);
        const Owned out = Make(TensorType::kF32, 2, outputs, /*extra_row_bytes=*/4);
        ASSERT_EQ(MatVec(x.tensor, weight.tensor, bias.tensor, out.tensor, false, nullptr),
                  nullptr);
        std::vector<float> row(inputs);
        for (int64_t o = 0; o < outputs; ++o) {
          quant::DecodeRow(type, weight.tensor.Rows(o, 1).data, row.data(), inputs);
          for (int64_t t = 0; t < 2; ++t) {
            double expected = bias.Floats(0)[o];
            double size = std::abs(expected);
            for (int64_t i = 0; i < inputs; ++i) {
              expected += double{row[i]} * x.Floats(t)[i];
              size += std::abs(double{row[i]} * x.Floats(t)[i]);
            }
            // Q4_K: codes and minima are summed apart, so more is added up than the weights show.
            const double bound = type == TensorType::kQ4_K ? 2e-6 : 5e-7;
            ASSERT_NEAR(out.Floats(t)[o], expected, size * bound) << t << " " << o;
          }
        }
      }
    }
  }
}

TEST_P(KernelsTest, MatVecAddsAndNeedsNoBias) {
  for (const TensorType type : {TensorType::kQ8_0, TensorType::kQ4_K}) {
    const Owned weight = RandomWeights(type, 9, 512);
    const Owned x = RandomFloats(1, 512);
    const Owned once = Make(TensorType::kF32, 1, 9);
    ASSERT_EQ(MatVec(x.tensor, weight.tensor, {}, once.tensor, false, nullptr), nullptr);
    const Owned twice = RandomFloats(1, 9);
    std::vector<float> before(twice.Floats(0), twice.Floats(0) + 9);
    ASSERT_EQ(MatVec(x.tensor, weight.tensor, {}, twice.tensor, true, nullptr), nullptr);
    for (int o = 0; o < 9; ++o) EXPECT_EQ(twice.Floats(0)[o], before[o] + once.Floats(0)[o]);
  }
}

// Batching must not change a bit of any row.
TEST_P(KernelsTest, RowsDoNotDependOnEachOther) {
  const Owned weight = RandomWeights(TensorType::kQ4_K, 11, 768);
  const Owned x = RandomFloats(3, 768);
  const Owned together = Make(TensorType::kF32, 3, 11);
  const Owned alone = Make(TensorType::kF32, 3, 11);
  ASSERT_EQ(MatVec(x.tensor, weight.tensor, {}, together.tensor, false, nullptr), nullptr);
  for (int t = 0; t < 3; ++t) {
    ASSERT_EQ(
        MatVec(x.tensor.Rows(t, 1), weight.tensor, {}, alone.tensor.Rows(t, 1), false, nullptr),
        nullptr);
  }
  EXPECT_TRUE(SameBits(together.Floats(0), alone.Floats(0), 3 * 11));
}

TEST_P(KernelsTest, MatVecNamesTypesItLacks) {
  EXPECT_TRUE(HasMatVec(TensorType::kQ8_0));
  EXPECT_FALSE(HasMatVec(TensorType::kQ6_K));
  const Owned weight = Make(TensorType::kQ6_K, 1, 256);
  const Owned x = RandomFloats(1, 256);
  EXPECT_THAT(MatVec(x.tensor, weight.tensor, {}, x.tensor, false, nullptr),
              StrEq("no matrix-vector kernel for this tensor type"));
}

// The same rule, written the plain way: sort all experts by probability, ties by index.
void ReferenceRoute(const float* logits, int n, int k, bool normalize, std::vector<int32_t>& ids,
                    std::vector<double>& weights) {
  double largest = -INFINITY;
  for (int i = 0; i < n; ++i) {
    if (logits[i] > largest) largest = logits[i];
  }
  std::vector<double> p(n);
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    p[i] = std::isnan(logits[i]) ? 0 : (logits[i] == largest ? 1 : std::exp(logits[i] - largest));
    sum += p[i];
  }
  ids.resize(n);
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return p[a] > p[b]; });
  ids.resize(k);
  double chosen = 0;
  weights.clear();
  for (const int32_t id : ids) {
    weights.push_back(sum > 0 ? p[id] / sum : 0);
    chosen += weights.back();
  }
  if (!normalize || chosen == 0) return;
  for (double& weight : weights) weight /= chosen;
}

void ExpectRouted(const Owned& logits, int k) {
  const int n = static_cast<int>(logits.tensor.cols);
  for (const bool normalize : {false, true}) {
    SCOPED_TRACE(testing::Message() << n << " experts, " << k << " used, " << normalize);
    const Owned ids = Make(TensorType::kI32, logits.tensor.rows, k, /*extra_row_bytes=*/4);
    const Owned weights = Make(TensorType::kF32, logits.tensor.rows, k, /*extra_row_bytes=*/8);
    ASSERT_EQ(Route(logits.tensor, k, normalize, ids.tensor, weights.tensor, nullptr), nullptr);
    std::vector<int32_t> expected_ids;
    std::vector<double> expected_weights;
    for (int64_t t = 0; t < logits.tensor.rows; ++t) {
      ReferenceRoute(logits.Floats(t), n, k, normalize, expected_ids, expected_weights);
      EXPECT_EQ(std::vector<int32_t>(ids.Ints(t), ids.Ints(t) + k), expected_ids) << t;
      for (int j = 0; j < k; ++j) {
        EXPECT_NEAR(weights.Floats(t)[j], expected_weights[j], 1e-6 * expected_weights[j] + 1e-37);
      }
    }
  }
}

TEST_P(KernelsTest, RouteMatchesSorting) {
  for (const auto& [n, k] : std::vector<std::pair<int, int>>{
           {1, 1}, {8, 2}, {16, 4}, {31, 31}, {32, 8}, {60, 4}, {128, 8}, {384, 6}, {512, 10}}) {
    for (const int64_t tokens : {1, 3}) ExpectRouted(RandomFloats(tokens, n, 4), k);
  }
}

TEST_P(KernelsTest, RouteBreaksTiesAndSurvivesNonsense) {
  const Owned logits = Make(TensorType::kF32, 5, 8);
  const float rows[5][8] = {{1, 3, 2, 3, 0, -1, 2, 3},
                            {0, 0, 0, 0, 0, 0, 0, 0},
                            {NAN, -INFINITY, NAN, 1, NAN, NAN, NAN, NAN},
                            {1e30F, -1e30F, 1e30F, 0, 0, 0, 0, 5},
                            {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN}};
  std::memcpy(logits.Floats(0), rows, sizeof(rows));
  ExpectRouted(logits, 4);
  ExpectRouted(logits, 8);
}

TEST_P(KernelsTest, RefusesWhatDoesNotFit) {
  const Owned logits = Make(TensorType::kF32, 1, 20000);
  EXPECT_THAT(Route(logits.tensor, 1, false, logits.tensor, logits.tensor, nullptr),
              StrEq("too many experts for the router kernel"));
  const Tensor none = {TensorType::kF32, 0, 8, 32, logits.tensor.data};
  EXPECT_EQ(RmsNorm(none, none, 1e-5F, none, nullptr), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Schedules, KernelsTest,
                         ::testing::Values(Schedule::kForward, Schedule::kReverse),
                         [](const auto& test) {
                           return test.param == Schedule::kForward ? "Forward" : "Reverse";
                         });

}  // namespace
}  // namespace strata::compute::gpu
