// Logits of every architecture against llama.cpp on random weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "common/base/test_folder.h"
#include "tests/engine/local_engine.h"
#include "tests/oracle/llama_model.h"
#include "tests/oracle/random_model.h"

namespace strata::compute {
namespace {

struct Difference {
  double max = 0;       // largest |ours - theirs|
  double median = 0;    // of the positions' largest differences
  double range = 0;     // of llama.cpp's logits
  double same_top = 0;  // share of positions with the same most likely token
};

Difference Compare(const std::vector<float>& ours, const std::vector<float>& theirs, size_t vocab) {
  Difference d;
  const auto [low, high] = std::minmax_element(theirs.begin(), theirs.end());
  d.range = *high - *low;
  std::vector<double> per_position;
  const size_t positions = ours.size() / vocab;
  for (size_t p = 0; p < positions; ++p) {
    const auto row = [&](const std::vector<float>& v) {
      return std::span(v).subspan(p * vocab, vocab);
    };
    double worst = 0;
    for (size_t i = 0; i < vocab; ++i) {
      worst = std::max(worst, std::abs(double{row(ours)[i]} - double{row(theirs)[i]}));
    }
    per_position.push_back(worst);
    const auto top = [](std::span<const float> r) {
      return std::max_element(r.begin(), r.end()) - r.begin();
    };
    d.same_top += top(row(ours)) == top(row(theirs)) ? 1.0 / static_cast<double>(positions) : 0;
  }
  std::sort(per_position.begin(), per_position.end());
  d.max = per_position.back();
  d.median = per_position[per_position.size() / 2];
  return d;
}

class LogitsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (oracle::LlamaLibrary::Get() == nullptr) GTEST_SKIP() << oracle::LlamaLibrary::WhyMissing();
  }

  absl::StatusOr<Difference> Run(TensorType type, const std::string& kv_type) {
    oracle::RandomModel shape;
    shape.architecture = GetParam();
    shape.experts = GetParam() == "qwen3moe" ? 16 : 0;
    shape.experts_used = GetParam() == "qwen3moe" ? 4 : 0;
    shape.layers = 3;
    shape.tied_head = GetParam() == "qwen2";
    shape.type = type;
    const TestFolder folder;
    const std::string path = folder / "model.gguf";
    STRATA_RETURN_IF_ERROR(oracle::WriteRandomModel(path, shape));
    std::mt19937 random(5);
    std::vector<int32_t> tokens(512);
    for (int32_t& t : tokens) t = static_cast<int32_t>(random() % shape.vocabulary);

    oracle::LlamaModelOptions options;
    options.cache = FindTensorType(std::string_view(kv_type))->type;
    options.flash_attention = options.cache == TensorType::kQ8_0;  // needed for its values
    STRATA_ASSIGN_OR_RETURN(const auto model,
                            oracle::LlamaModel::Load(*oracle::LlamaLibrary::Get(), path, options));
    STRATA_ASSIGN_OR_RETURN(const std::vector<float> theirs, model->Logits(tokens));
    v1::ComputeConfig config = SmallConfig();
    config.set_kv_type(kv_type);
    const std::vector<uint32_t> ids(tokens.begin(), tokens.end());
    STRATA_ASSIGN_OR_RETURN(const std::vector<float> ours, AllLogits(path, config, ids));
    if (ours.size() != theirs.size()) return absl::InternalError("sizes differ");
    return Compare(ours, theirs, shape.vocabulary);
  }
};

TEST_P(LogitsTest, F32WeightsAgreeToTheLastDigits) {
  const auto d = Run(TensorType::kF32, "f32");
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_LE(d->max, 1e-4 * d->range);
  EXPECT_EQ(d->same_top, 1);
}

TEST_P(LogitsTest, F16WeightsAgreeToTheirPrecision) {
  const auto d = Run(TensorType::kF16, "f16");
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_LE(d->max, 1e-2 * d->range);
}

TEST_P(LogitsTest, CoarserKeysAndValuesAgreeToTheirs) {
  for (const char* type : {"bf16", "q8_0"}) {
    const auto d = Run(TensorType::kF16, type);
    ASSERT_TRUE(d.ok()) << d.status();
    EXPECT_LE(d->median, 2e-2 * d->range) << type;
    EXPECT_GE(d->same_top, 0.95) << type;
  }
}

// int8 activations make quantised logits chaotic: a rounding can move a token to another expert.
// The bounds catch a wrong scale or a swapped block, which change everything; kernels are compared
// tightly beside their source.
TEST_P(LogitsTest, QuantisedWeightsAgreeInTheMedian) {
  for (const TensorType type : {TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ6_K}) {
    const auto d = Run(type, "f16");
    ASSERT_TRUE(d.ok()) << d.status();
    EXPECT_LE(d->median, 0.03 * d->range) << NameOf(type);
    EXPECT_GE(d->same_top, 0.9) << NameOf(type);
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, LogitsTest,
                         testing::Values("llama", "qwen2", "qwen3", "qwen3moe"),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace strata::compute
