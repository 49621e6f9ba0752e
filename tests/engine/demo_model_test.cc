// The demo model on natural text: our engine against llama.cpp on the same file.
#include <gtest/gtest.h>

#include <fstream>

#include "common/base/status.h"
#include "tests/engine/perplexity.h"
#include "tests/oracle/llama_library.h"
#include "tests/oracle/shared_file.h"

namespace strata::compute {
namespace {

constexpr size_t kTokens = 2000;
constexpr size_t kPiece = 1000;  // the model's context is 1,024

absl::StatusOr<Agreement> Compare(const std::string& model) {
  STRATA_ASSIGN_OR_RETURN(const std::vector<uint32_t> text,
                          TextTokens(model, RepositoryText(), kTokens));
  return CompareOnText(model, text, kPiece);
}

class DemoModelTest : public testing::Test {
 protected:
  void SetUp() override {
    if (oracle::LlamaLibrary::Get() == nullptr) GTEST_SKIP() << oracle::LlamaLibrary::WhyMissing();
  }
};

TEST_F(DemoModelTest, F16AgreesWithLlamaCpp) {
  const std::string model = oracle::SharedFile("models/demo/demo-f16.gguf");
  if (!std::ifstream(model).good()) GTEST_SKIP() << "there is no " << model;
  const auto a = Compare(model);
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_GE(static_cast<double>(a->same_top), 0.99 * static_cast<double>(a->positions));
  EXPECT_NEAR(a->Ratio(), 1, 0.001);
  RecordProperty("perplexity_ratio", std::to_string(a->Ratio()));
}

// Both sides round activations to 8 bits, in different places: routing may differ where two experts
// are almost equally likely, so single positions do; the average must not.
TEST_F(DemoModelTest, TheShippedFileAgreesOnAverage) {
  const auto a = Compare("deploy/demo/strata-demo.gguf");
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_GE(static_cast<double>(a->same_top), 0.95 * static_cast<double>(a->positions));
  EXPECT_NEAR(a->Ratio(), 1, 0.01);
  RecordProperty("perplexity_ratio", std::to_string(a->Ratio()));
}

}  // namespace
}  // namespace strata::compute
