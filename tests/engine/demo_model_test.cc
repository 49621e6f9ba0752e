// The demo model on natural text: our engine against llama.cpp on the same file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "cli/bench_text.h"
#include "common/base/status.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/engine/local_engine.h"
#include "tests/oracle/llama_model.h"
#include "tests/oracle/shared_file.h"

namespace strata::compute {
namespace {

constexpr size_t kTokens = 2000;
constexpr size_t kPiece = 1000;  // the model's context is 1,024

// 2,000 tokens of natural text: what `strata bench model` reads, then this repository's README.
absl::StatusOr<std::vector<uint32_t>> Text(const std::string& model) {
  STRATA_ASSIGN_OR_RETURN(const auto file, gguf::Model::Open(model));
  STRATA_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::FromGguf(file->metadata()));
  std::string text(cli::kBenchText);
  std::ifstream readme("README.md");
  text.append(std::istreambuf_iterator<char>(readme), {});
  std::vector<uint32_t> tokens = tokenizer->Encode(text, /*parse_special=*/false);
  if (tokens.size() < kTokens) return absl::InternalError("the text is too short");
  tokens.resize(kTokens);
  return tokens;
}

struct Agreement {
  size_t positions = 0;
  size_t same_top = 0;
  double our_loss = 0;  // sum of -log p of the next token
  double their_loss = 0;
};

double Loss(std::span<const float> logits, uint32_t next) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(double{l} - top);
  return top + std::log(sum) - logits[next];
}

absl::StatusOr<Agreement> Compare(const std::string& model) {
  STRATA_ASSIGN_OR_RETURN(const std::vector<uint32_t> text, Text(model));
  oracle::LlamaModelOptions options;
  options.f32_cache = false;
  STRATA_ASSIGN_OR_RETURN(const auto llama,
                          oracle::LlamaModel::Load(*oracle::LlamaLibrary::Get(), model, options));
  Agreement agreement;
  for (size_t begin = 0; begin < kTokens; begin += kPiece) {
    const std::vector<uint32_t> piece(text.begin() + static_cast<ptrdiff_t>(begin),
                                      text.begin() + static_cast<ptrdiff_t>(begin + kPiece));
    const std::vector<int32_t> ids(piece.begin(), piece.end());
    STRATA_ASSIGN_OR_RETURN(const std::vector<float> theirs, llama->Logits(ids));
    STRATA_ASSIGN_OR_RETURN(const std::vector<float> ours, AllLogits(model, SmallConfig(), piece));
    const size_t vocab = ours.size() / kPiece;
    for (size_t i = 0; i + 1 < kPiece; ++i) {
      const auto a = std::span(ours).subspan(i * vocab, vocab);
      const auto b = std::span(theirs).subspan(i * vocab, vocab);
      ++agreement.positions;
      agreement.same_top += std::max_element(a.begin(), a.end()) - a.begin() ==
                            std::max_element(b.begin(), b.end()) - b.begin();
      agreement.our_loss += Loss(a, piece[i + 1]);
      agreement.their_loss += Loss(b, piece[i + 1]);
    }
  }
  return agreement;
}

double PerplexityRatio(const Agreement& a) {
  return std::exp((a.our_loss - a.their_loss) / static_cast<double>(a.positions));
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
  EXPECT_NEAR(PerplexityRatio(*a), 1, 0.001);
  RecordProperty("perplexity_ratio", std::to_string(PerplexityRatio(*a)));
}

// Both sides round activations to 8 bits, in different places: routing may differ where two experts
// are almost equally likely, so single positions do; the average must not.
TEST_F(DemoModelTest, TheShippedFileAgreesOnAverage) {
  const auto a = Compare("deploy/demo/strata-demo.gguf");
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_GE(static_cast<double>(a->same_top), 0.95 * static_cast<double>(a->positions));
  EXPECT_NEAR(PerplexityRatio(*a), 1, 0.01);
  RecordProperty("perplexity_ratio", std::to_string(PerplexityRatio(*a)));
}

}  // namespace
}  // namespace strata::compute
