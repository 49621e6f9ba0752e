// What splicing costs in quality: the demo model on edited text, against a full read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cli/bench_text.h"
#include "cli/splice_eval.h"
#include "common/base/status.h"
#include "common/tokenizer/line_starts.h"
#include "common/tokenizer/tokenizer.h"
#include "services/kvstore/align/aligner.h"
#include "services/kvstore/align/test_corpus.h"
#include "tests/engine/agent_text.h"
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
    v1::ComputeConfig wide = SmallConfig();
    wide.set_kv_type("f32");
    auto other = OpenLocal(kModel, wide);
    ASSERT_TRUE(other.ok()) << other.status();
    other_rounding_ = *std::move(other);
    auto tokenizer = tokenizer::Tokenizer::FromGguf(runtime_->file().metadata());
    ASSERT_TRUE(tokenizer.ok());
    tokenizer_ = *std::move(tokenizer);
  }

  // The prompt is the beginning of a text, the continuation what follows.
  void Use(std::string_view whole) {
    const std::string text(whole);
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
    return Score(*runtime_, prompt, plan, budget);
  }
  std::vector<float> Score(Runtime& runtime, const Tokens& prompt, const v1::RestorePlan& plan,
                           double budget) {
    Tokens all = prompt;
    all.insert(all.end(), continuation_.begin(), continuation_.end());
    auto scores = ScoreDistribution(runtime.engine(), all, prompt.size(), plan, budget);
    EXPECT_TRUE(scores.ok()) << scores.status();
    return scores.ok() ? *std::move(scores) : std::vector<float>();
  }

  MemoryStore store_;
  kvstore::TestCorpus corpus_;
  std::unique_ptr<Runtime> runtime_;
  // The same model with K/V that are not rounded to F16: a full read that differs from runtime_'s
  // by nothing but rounding.
  std::unique_ptr<Runtime> other_rounding_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::string text_;
  Tokens continuation_, stored_;
};

// Where two full reads that differ only by rounding agree on the likeliest token: the share of
// these positions where the spliced read agrees as well. Elsewhere the last bit decides, whatever
// is done with the prompt.
double SameTopWhereSure(std::span<const float> full, std::span<const float> other,
                        std::span<const float> actual, size_t positions) {
  const size_t vocabulary = full.size() / positions;
  int sure = 0;
  int same = 0;
  for (size_t i = 0; i < positions; ++i) {
    const auto top = [&](std::span<const float> rows) {
      const auto row = rows.subspan(i * vocabulary, vocabulary);
      return std::max_element(row.begin(), row.end()) - row.begin();
    };
    if (top(full) != top(other)) continue;
    ++sure;
    same += top(full) == top(actual) ? 1 : 0;
  }
  return static_cast<double>(same) / sure;
}

struct Means {
  double kl = 0;
  double top = 0;
  double sure = 0;
  void Add(const cli::Difference& d, double where_sure, size_t of) {
    kl += d.mean_kl / static_cast<double>(of);
    top += d.same_top / static_cast<double>(of);
    sure += where_sure / static_cast<double>(of);
  }
  void Print(const char* name) const {
    std::printf("mean %-5s KL %.5f top %.4f where sure %.4f\n", name, kl, top, sure);
  }
};

class SpliceQuality : public SpliceQualityTest,
                      public testing::WithParamInterface<std::string_view> {};

TEST_P(SpliceQuality, StaysNearAFullRead) {
  Use(GetParam());
  stored_ = Encode(text_);
  Keep(stored_);
  const Tokens next(continuation_.begin() + 1, continuation_.end());
  Means floor, fast, safe;
  const auto edits = cli::EditsOf(text_);
  for (const cli::EditedText& edit : edits) {
    const Tokens prompt = Encode(edit.text);
    const std::vector<float> full = Score(prompt, {}, 0);
    const std::vector<float> other = Score(*other_rounding_, prompt, {}, 0);
    const auto report = [&](const char* name, std::span<const float> actual, Means* means) {
      const cli::Difference d = cli::Compare(full, actual, next);
      const double sure = SameTopWhereSure(full, other, actual, next.size());
      std::printf("%-18s %-9s KL %.5f p99 %.5f top %.3f where sure %.3f ppl %.4f\n",
                  edit.name.c_str(), name, d.mean_kl, d.p99_kl, d.same_top, sure,
                  d.perplexity_ratio);
      EXPECT_EQ(d.positions, 128u);
      if (means != nullptr) means->Add(d, sure, edits.size());
      return d;
    };
    const auto spliced = [&](v1::SpliceMode mode, double budget) {
      return Score(prompt, Plan(prompt, mode), budget);
    };
    EXPECT_EQ(report("off", spliced(v1::SPLICE_OFF, 0), nullptr).mean_kl, 0)
        << "without a splice nothing changes";
    report("rounding", other, &floor);
    report("fast", spliced(v1::SPLICE_FAST, 0), &fast);
    const double budget = EngineOptions{}.splice_budget;
    report("safe", spliced(v1::SPLICE_SAFE, budget), &safe);
    for (const char* more = std::getenv("STRATA_SPLICE_BUDGETS"); more != nullptr;) {
      char* end = nullptr;
      const double other_budget = std::strtod(more, &end);
      if (end == more) break;
      report(absl::StrCat("safe ", other_budget).c_str(), spliced(v1::SPLICE_SAFE, other_budget),
             nullptr);
      more = *end == ',' ? end + 1 : end;
    }
  }
  floor.Print("floor");
  fast.Print("fast");
  safe.Print("safe");
  EXPECT_LE(safe.kl, 0.02);
  EXPECT_GE(safe.sure, 0.97);
  // No further from a full read than full reads are from each other, but for the noise of 640
  // positions.
  EXPECT_GE(safe.top, floor.top - 0.015);
}

INSTANTIATE_TEST_SUITE_P(Texts, SpliceQuality, testing::Values(cli::kBenchText, kAgentText));

}  // namespace
}  // namespace strata::compute
