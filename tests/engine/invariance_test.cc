// The same prompt gives the same answer however it is computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "common/base/status.h"
#include "common/base/test_folder.h"
#include "tests/engine/local_engine.h"
#include "tests/oracle/random_model.h"

namespace strata::compute {
namespace {

std::vector<uint32_t> RandomPrompt(size_t length, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> prompt(length);
  for (uint32_t& t : prompt) t = random() % 128;
  return prompt;
}

class InvarianceTest : public testing::TestWithParam<TensorType> {
 protected:
  void SetUp() override {
    oracle::RandomModel shape;
    shape.type = GetParam();
    const absl::Status status = oracle::WriteRandomModel(path_, shape);
    ASSERT_TRUE(status.ok()) << status;
  }
  const TestFolder folder_;
  const std::string path_ = folder_ / "model.gguf";
};

TEST_P(InvarianceTest, ChunksThreadsAndCompanyDoNotChangeTokens) {
  constexpr uint32_t kAnswer = 24;
  const std::vector<uint32_t> prompt = RandomPrompt(150, 1);
  std::vector<uint32_t> expected;
  for (const uint32_t chunk : {512u, 64u, 7u, 1u}) {
    for (const uint32_t threads : {1u, 3u}) {
      v1::ComputeConfig config = SmallConfig();
      config.set_chunk_tokens(chunk);
      config.set_threads(threads);
      auto runtime = OpenLocal(path_, config);
      ASSERT_TRUE(runtime.ok()) << runtime.status();
      Engine& engine = (*runtime)->engine();
      const auto alone = GenerateGreedy(engine, prompt, kAnswer);
      ASSERT_TRUE(alone.ok()) << alone.status();
      if (expected.empty()) expected = *alone;
      EXPECT_EQ(*alone, expected) << "chunk " << chunk << ", threads " << threads;

      // Now with three others that come and go.
      std::vector<std::shared_ptr<CollectingSink>> others;
      for (uint32_t i = 0; i < 3; ++i) {
        others.push_back(std::make_shared<CollectingSink>());
        const auto other = RandomPrompt(20 + 60 * i, 100 + i);
        ASSERT_TRUE(engine.Generate(Request(other, 5 + 10 * i), others.back()).ok());
      }
      const auto together = GenerateGreedy(engine, prompt, kAnswer);
      ASSERT_TRUE(together.ok()) << together.status();
      EXPECT_EQ(*together, expected) << "in company, chunk " << chunk << ", threads " << threads;
      for (const auto& other : others) EXPECT_TRUE(other->Wait().ok());
    }
  }
  EXPECT_EQ(expected.size(), kAnswer);
}

// What the last layer does for some rows is what it does for them among all.
TEST_P(InvarianceTest, RowsThatNobodyWantsChangeNothing) {
  for (const char* architecture : {"llama", "qwen3moe"}) {
    oracle::RandomModel shape;
    shape.type = GetParam();
    shape.architecture = architecture;
    shape.experts = shape.architecture == "qwen3moe" ? 16 : 0;
    shape.experts_used = shape.architecture == "qwen3moe" ? 4 : 0;
    const std::string path = folder_ / (shape.architecture + ".gguf");
    const absl::Status written = oracle::WriteRandomModel(path, shape);
    ASSERT_TRUE(written.ok()) << written;
    const std::vector<uint32_t> prompt = RandomPrompt(90, 7);
    const auto all = AllLogits(path, SmallConfig(), prompt);
    ASSERT_TRUE(all.ok()) << all.status();
    const size_t vocab = all->size() / prompt.size();
    std::vector<int32_t> everything(prompt.size());
    std::iota(everything.begin(), everything.end(), 0);
    for (const std::vector<int32_t>& wanted :
         {std::vector<int32_t>{}, {89}, {0}, {0, 1, 2, 89}, {3, 40, 41, 88}, everything}) {
      const auto some = AllLogits(path, SmallConfig(), prompt, wanted);
      ASSERT_TRUE(some.ok()) << some.status();
      ASSERT_EQ(some->size(), wanted.size() * vocab);
      for (size_t i = 0; i < wanted.size(); ++i) {
        const auto row = std::span(*all).subspan(static_cast<size_t>(wanted[i]) * vocab, vocab);
        EXPECT_TRUE(std::ranges::equal(std::span(*some).subspan(i * vocab, vocab), row))
            << architecture << ": row " << wanted[i] << " of " << wanted.size();
      }
    }
  }
}

TEST_P(InvarianceTest, ScoresEqualTheProbabilitiesOfGeneration) {
  auto runtime = OpenLocal(path_, SmallConfig());
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  Engine& engine = (*runtime)->engine();
  const std::vector<uint32_t> prompt = RandomPrompt(70, 3);
  v1::GenerateRequest request = Request(prompt, 10);
  request.set_logprobs(true);
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine.Generate(request, sink).ok());
  ASSERT_TRUE(sink->Wait().ok());
  std::vector<uint32_t> all = prompt;
  for (const uint32_t t : sink->tokens()) all.push_back(t);
  const auto scores = ScoreTokens(engine, all);
  ASSERT_TRUE(scores.ok()) << scores.status();
  ASSERT_EQ(scores->logprobs.size(), all.size() - 1);
  const auto details = sink->details();
  for (size_t i = 0; i < details.size(); ++i) {
    EXPECT_EQ(scores->logprobs[prompt.size() - 1 + i], details[i].logprob()) << i;
    EXPECT_EQ(scores->argmax[prompt.size() - 1 + i], details[i].id()) << i;
  }
}

TEST_P(InvarianceTest, SampledAnswerResumesWhereItStopped) {
  auto runtime = OpenLocal(path_, SmallConfig());
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  Engine& engine = (*runtime)->engine();
  const std::vector<uint32_t> prompt = RandomPrompt(30, 4);
  v1::GenerateRequest request = Request(prompt, 40);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(99);
  request.mutable_sampling()->set_presence_penalty(0.5);
  auto whole = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine.Generate(request, whole).ok());
  ASSERT_TRUE(whole->Wait().ok());
  const std::vector<uint32_t> answer = whole->tokens();
  ASSERT_EQ(answer.size(), 40u);

  for (int i = 0; i < 15; ++i) request.mutable_prompt()->add_ids(answer[static_cast<size_t>(i)]);
  request.set_resumed_tokens(15);
  auto rest = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine.Generate(request, rest).ok());
  ASSERT_TRUE(rest->Wait().ok());
  EXPECT_EQ(rest->tokens(), std::vector<uint32_t>(answer.begin() + 15, answer.end()));
  EXPECT_EQ(rest->finish().usage().completion_tokens(), 40u);
  EXPECT_EQ(rest->finish().usage().prompt_tokens(), 30u);
}

INSTANTIATE_TEST_SUITE_P(Types, InvarianceTest,
                         testing::Values(TensorType::kF32, TensorType::kQ8_0, TensorType::kQ4_K),
                         [](const auto& instance) { return std::string(NameOf(instance.param)); });

}  // namespace
}  // namespace strata::compute
