// What splicing costs in quality: the demo model on edited text, against a full read.
#include <gtest/gtest.h>

#include <cstdio>

#include "cli/bench_text.h"
#include "cli/splice_eval.h"
#include "common/base/status.h"
#include "common/tokenizer/line_starts.h"
#include "common/tokenizer/tokenizer.h"
#include "services/kvstore/align/aligner.h"
#include "services/kvstore/align/test_corpus.h"
#include "tests/engine/local_engine.h"
#include "tests/engine/memory_store.h"

namespace strata::compute {
namespace {

using Tokens = std::vector<uint32_t>;
constexpr const char* kModel = "deploy/demo/strata-demo.gguf";
constexpr size_t kPromptTokens = 600;  // the model was trained on 768 positions
constexpr size_t kContinuation = 129;  // 128 predictions

class SpliceQualityTest : public testing::Test {
 protected:
  void SetUp() override {
    auto runtime = OpenLocal(kModel, SmallConfig(), &store_);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    auto tokenizer = tokenizer::Tokenizer::FromGguf(runtime_->file().metadata());
    ASSERT_TRUE(tokenizer.ok());
    tokenizer_ = *std::move(tokenizer);
    std::string text(cli::kBenchText);
    // Whole lines of about kPromptTokens tokens; what follows is the continuation.
    size_t end = 0;
    while (Encode(text.substr(0, end)).size() < kPromptTokens) end = text.find('\n', end) + 1;
    text_ = text.substr(0, end);
    continuation_ = Encode(text.substr(end));
    ASSERT_GE(continuation_.size(), kContinuation);
    continuation_.resize(kContinuation);
  }

  Tokens Encode(const std::string& text) {
    return tokenizer_->Encode(text, /*parse_special=*/false);
  }

  // Reads a prompt and keeps its state.
  void Keep(const Tokens& prompt) {
    v1::GenerateRequest request = Request(prompt, 1);
    request.set_save_state(true);
    auto sink = std::make_shared<CollectingSink>();
    ASSERT_TRUE(runtime_->engine().Generate(request, sink).ok());
    ASSERT_TRUE(sink->Wait().ok());
    corpus_.Save(prompt);
  }

  v1::RestorePlan Plan(const Tokens& prompt, v1::SpliceMode mode) {
    v1::RestorePlan plan = store_.Plan(*runtime_, prompt);
    plan.set_splice(mode);
    if (mode == v1::SPLICE_OFF) return plan;
    const auto lines =
        tokenizer::LineStarts(prompt, [&](uint32_t id) { return tokenizer_->Piece(id); });
    for (const kvstore::MovedRun& run :
         kvstore::Align(corpus_.seeds(), corpus_, prompt, plan.reused_tokens(), lines, {})) {
      v1::MovedRun& moved = *plan.add_runs();
      moved.set_first_token(run.first_token);
      moved.set_tokens(run.tokens);
      moved.set_old_first_token(run.old_first_token);
      const v1::RestorePlan stored = store_.Plan(*runtime_, stored_);
      for (const v1::BlockRef& ref : stored.blocks()) {
        if (ref.first_token() + ref.tokens() > run.old_first_token &&
            ref.first_token() < run.old_first_token + run.tokens) {
          *moved.add_blocks() = ref;
        }
      }
    }
    return plan;
  }

  // Distributions over the continuation's tokens behind a prompt.
  std::vector<float> Score(const Tokens& prompt, const v1::RestorePlan& plan, double budget) {
    Tokens all = prompt;
    all.insert(all.end(), continuation_.begin(), continuation_.end());
    auto scores = ScoreDistribution(runtime_->engine(), all, prompt.size(), plan, budget);
    EXPECT_TRUE(scores.ok()) << scores.status();
    return scores.ok() ? *std::move(scores) : std::vector<float>();
  }

  MemoryStore store_;
  kvstore::TestCorpus corpus_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::string text_;
  Tokens continuation_, stored_;
};

TEST_F(SpliceQualityTest, StaysNearAFullRead) {
  stored_ = Encode(text_);
  Keep(stored_);
  const Tokens next(continuation_.begin() + 1, continuation_.end());
  double safe_kl = 0;
  double safe_top = 0;
  const auto edits = cli::EditsOf(text_);
  for (const cli::EditedText& edit : edits) {
    const Tokens prompt = Encode(edit.text);
    const std::vector<float> full = Score(prompt, {}, 0);
    const auto report = [&](const char* name, v1::SpliceMode mode, double budget) {
      const v1::RestorePlan plan = Plan(prompt, mode);
      uint32_t moved = 0;
      for (const v1::MovedRun& run : plan.runs()) moved += run.tokens();
      const cli::Difference d = cli::Compare(full, Score(prompt, plan, budget), next);
      std::printf("%-18s %-9s prefix %3u moved %3u of %zu: KL %.5f p99 %.5f top %.3f ppl %.4f\n",
                  edit.name.c_str(), name, plan.reused_tokens(), moved, prompt.size(), d.mean_kl,
                  d.p99_kl, d.same_top, d.perplexity_ratio);
      if (mode == v1::SPLICE_OFF) {
        EXPECT_EQ(d.mean_kl, 0) << "without a splice nothing changes";
      }
      return d;
    };
    report("off", v1::SPLICE_OFF, 0);
    report("fast", v1::SPLICE_FAST, 0);
    const cli::Difference safe = report("safe", v1::SPLICE_SAFE, 0.15);
    EXPECT_EQ(safe.positions, 128u);
    safe_kl += safe.mean_kl / static_cast<double>(edits.size());
    safe_top += safe.same_top / static_cast<double>(edits.size());
  }
  std::printf("safe: mean KL %.5f top %.4f\n", safe_kl, safe_top);
  EXPECT_LE(safe_kl, 0.02);
  // The goal is 0.97. Of 640 positions the share is known to about 0.006, and every instruction set
  // rounds differently.
  EXPECT_GE(safe_top, 0.955);
}

}  // namespace
}  // namespace strata::compute
