// Every type of weights in a real model: our perplexity against llama.cpp's on the same file.
#include "tests/engine/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "common/base/status.h"
#include "common/base/test_folder.h"
#include "services/compute/cpu/test_tensors.h"
#include "tests/oracle/llama_library.h"
#include "tests/oracle/requantized_model.h"

namespace strata::compute {
namespace {

constexpr char kModel[] = "deploy/demo/strata-demo.gguf";
// Attention and experts of one layer are of the type; quantising more would take minutes.
constexpr char kPrefix[] = "blk.2.";
constexpr size_t kTokens = 2000;
constexpr size_t kPiece = 1000;  // the context is 1,024

class PerplexityTest : public ::testing::TestWithParam<TensorTypeInfo> {};

// On so short a text the difference of two good engines is mostly chance: positions where another
// expert was chosen, because int8 activations are rounded in other blocks. Its size is measured
// with it. tests/bench/perplexity does the same for all layers over 20,000 tokens.
TEST_P(PerplexityTest, AgreesWithLlamaCpp) {
  const oracle::LlamaLibrary* llama = oracle::LlamaLibrary::Get();
  if (llama == nullptr) GTEST_SKIP() << oracle::LlamaLibrary::WhyMissing();
  const auto tokens = TextTokens(kModel, RepositoryText(), kTokens);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  const TestFolder folder;
  const std::string file = folder / "model.gguf";
  const absl::Status written =
      oracle::WriteRequantizedModel(*llama, kModel, file, GetParam().type, kPrefix);
  ASSERT_TRUE(written.ok()) << written;
  // One thread: other tests run beside this one, and llama.cpp's threads wait for each other
  // busily.
  const auto a = CompareOnText(file, *tokens, kPiece, /*threads=*/1);
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_LE(std::abs(a->Ratio() - 1), 0.001 + 4 * a->StandardError());
  EXPECT_LE(a->StandardError(), 0.007);
  EXPECT_GE(static_cast<double>(a->same_top), 0.93 * static_cast<double>(a->positions));
  RecordProperty("perplexity_ratio", std::to_string(a->Ratio()));
}

std::vector<TensorTypeInfo> WeightTypes() {
  std::vector<TensorTypeInfo> types;
  for (const TensorTypeInfo& info : AllTensorTypes()) {
    if (compute::testing::IsWeightType(info.type)) types.push_back(info);
  }
  return types;
}

INSTANTIATE_TEST_SUITE_P(Types, PerplexityTest, ::testing::ValuesIn(WeightTypes()),
                         [](const auto& type) { return std::string(type.param.name); });

}  // namespace
}  // namespace strata::compute
