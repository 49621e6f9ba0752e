// The oracle itself: that the hand-written declarations fit the library, on the demo model.
#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/test_folder.h"
#include "tests/oracle/llama_library.h"
#include "tests/oracle/llama_model.h"
#include "tests/oracle/random_model.h"
#include "tests/oracle/shared_file.h"

#include "gtest/gtest.h"

namespace strata::oracle {
namespace {

class LlamaOracle : public ::testing::Test {
 protected:
  void SetUp() override {
    llama_ = LlamaLibrary::Get();
    if (llama_ == nullptr) GTEST_SKIP() << LlamaLibrary::WhyMissing();
  }
  const LlamaLibrary* llama_ = nullptr;
};

TEST_F(LlamaOracle, QuantisesAndMultiplies) {
  std::vector<float> x(256);
  for (int i = 0; i < 256; ++i) x[i] = static_cast<float>(i % 17 - 8);
  const std::vector<std::byte> q8 = llama_->Quantize(8, x.data(), 256);
  ASSERT_EQ(q8.size(), 8 * 34);
  float dot = 0;
  llama_->CpuTypeTraits(8).vec_dot(256, &dot, 0, q8.data(), 0, q8.data(), 0, 1);
  double want = 0;
  for (float v : x) want += double{v} * double{v};
  EXPECT_NEAR(dot, want, 0.01 * want);
}

TEST_F(LlamaOracle, RunsAModel) {
  auto model = LlamaModel::Load(*llama_, SharedFile("models/demo/demo-f16.gguf"), {});
  if (!model.ok()) GTEST_SKIP() << model.status().message();
  const std::string text = "What is a cat?";
  const std::vector<int32_t> tokens = (*model)->Tokenize(text);
  std::string back;
  for (int32_t token : tokens) back += (*model)->TokenBytes(token);
  EXPECT_EQ(back, text);
  const auto logits = (*model)->Logits(tokens);
  ASSERT_TRUE(logits.ok()) << logits.status();
  ASSERT_EQ(logits->size(), tokens.size() * (*model)->vocabulary_size());
  EXPECT_TRUE(std::ranges::all_of(*logits, [](float v) { return std::isfinite(v); }));
  const auto again = (*model)->Logits(tokens);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*logits, *again);
}

// llama.cpp accepts the models that tests make, of each architecture.
TEST_F(LlamaOracle, RunsRandomModels) {
  for (const char* architecture : {"llama", "qwen2", "qwen3", "qwen3moe"}) {
    RandomModel shape;
    shape.architecture = architecture;
    if (shape.architecture == "qwen2" || shape.architecture == "qwen3") shape.experts = 0;
    const TestFolder folder;
    const std::string path = folder / "model.gguf";
    const absl::Status written = WriteRandomModel(path, shape);
    ASSERT_TRUE(written.ok()) << written;
    auto model = LlamaModel::Load(*llama_, path, {});
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->vocabulary_size(), static_cast<int>(shape.vocabulary));
    const std::vector<int32_t> tokens = {5, 17, 99, 3};
    const auto logits = (*model)->Logits(tokens);
    ASSERT_TRUE(logits.ok()) << logits.status();
    double squares = 0;
    for (float v : *logits) squares += double{v} * v;
    const double rms = std::sqrt(squares / static_cast<double>(logits->size()));
    EXPECT_GT(rms, 0.3) << architecture;
    EXPECT_LT(rms, 3) << architecture;
  }
}

}  // namespace
}  // namespace strata::oracle
