// What splicing costs in quality: the demo model on edited text, against a full read. The bench
// program splice_quality measures the same on more text.
#include <gtest/gtest.h>

#include <cstdio>

#include "cli/bench_text.h"
#include "tests/engine/agent_text.h"
#include "tests/engine/splice_lab.h"

namespace strata::compute {
namespace {

class SpliceQuality : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    auto lab = SpliceLab::Open({});
    ASSERT_TRUE(lab.ok()) << lab.status();
    lab_ = *std::move(lab);
  }
  SpliceError ErrorOf(const SpliceLab::FullReads& full, v1::SpliceMode mode, double budget) {
    const absl::StatusOr<SpliceError> error = lab_->ErrorOf(full, mode, budget);
    EXPECT_TRUE(error.ok()) << error.status();
    return error.ok() ? *error : SpliceError();
  }
  std::unique_ptr<SpliceLab> lab_;
};

void Print(const char* name, const SpliceError& e) {
  std::printf("%-9s KL %.5f p99 %.5f top %.4f where sure %.4f ppl %.4f\n", name, e.mean_kl,
              e.p99_kl, e.same_top, e.same_where_sure, e.perplexity_ratio);
}

TEST_P(SpliceQuality, StaysNearAFullRead) {
  const auto text = lab_->Use(GetParam());
  ASSERT_TRUE(text.ok()) << text.status();
  SpliceError rounding, fast, safe;
  for (const cli::EditedText& edit : cli::EditsOf(*text)) {
    const auto full = lab_->ReadInFull(edit.text);
    ASSERT_TRUE(full.ok()) << full.status();
    EXPECT_GT(lab_->MovedTokens(*full), 200u) << edit.name;
    EXPECT_EQ(ErrorOf(*full, v1::SPLICE_OFF, 0).mean_kl, 0)
        << "without a splice nothing changes: " << edit.name;
    rounding.Add(lab_->ErrorOfRounding(*full));
    fast.Add(ErrorOf(*full, v1::SPLICE_FAST, 0));
    safe.Add(ErrorOf(*full, v1::SPLICE_SAFE, EngineOptions{}.splice_budget));
  }
  Print("rounding", rounding);
  Print("fast", fast);
  Print("safe", safe);
  EXPECT_LE(safe.mean_kl, 0.02);
  EXPECT_GE(safe.same_where_sure, 0.97);
  // No further from a full read than full reads are from each other, but for the noise of 640
  // positions.
  EXPECT_GE(safe.same_top, rounding.same_top - 0.015);
}

// Where activations are not rounded, what is left is the method's own error.
TEST(SpliceQualityUnrounded, SafeIsWithinItsBounds) {
  auto lab = SpliceLab::Open({.isa = "scalar"});
  ASSERT_TRUE(lab.ok()) << lab.status();
  const auto text = (*lab)->Use(kAgentText);
  ASSERT_TRUE(text.ok()) << text.status();
  SpliceError rounding, safe;
  for (const cli::EditedText& edit : cli::EditsOf(*text)) {
    const auto full = (*lab)->ReadInFull(edit.text);
    ASSERT_TRUE(full.ok()) << full.status();
    const auto error = (*lab)->ErrorOf(*full, v1::SPLICE_SAFE, EngineOptions{}.splice_budget);
    ASSERT_TRUE(error.ok()) << error.status();
    rounding.Add((*lab)->ErrorOfRounding(*full));
    safe.Add(*error);
  }
  Print("rounding", rounding);
  Print("safe", safe);
  EXPECT_GE(rounding.same_top, 0.99);
  EXPECT_LE(safe.mean_kl, 0.02);
  EXPECT_GE(safe.same_top, 0.97);
}

TEST_P(SpliceQuality, TheChangedFactIsAnsweredFromTheNewText) {
  constexpr std::string_view kQuestion = "The access code of the archive is ";
  const std::string text(GetParam());
  for (const size_t share : {8, 4, 2}) {
    const size_t at = text.find('\n', text.size() / share) + 1;
    const auto with = [&](std::string_view fact) {
      return text.substr(0, at) + std::string(kQuestion) + std::string(fact) + "\n" +
             text.substr(at, text.rfind('\n') + 1 - at);
    };
    const std::string prompt = with("8302.") + std::string(kQuestion);
    for (const auto mode : {v1::SPLICE_OFF, v1::SPLICE_FAST, v1::SPLICE_SAFE}) {
      const auto lead = lab_->Needle(with("4711."), prompt, "4711.", "8302.", mode,
                                     EngineOptions{}.splice_budget);
      ASSERT_TRUE(lead.ok()) << lead.status();
      std::printf("needle at 1/%zu, %s: %.2f nats\n", share, v1::SpliceMode_Name(mode).c_str(),
                  *lead);
      EXPECT_GT(*lead, 5) << "the new fact must be far likelier";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Texts, SpliceQuality, testing::Values(cli::kBenchText, kAgentText));

}  // namespace
}  // namespace strata::compute
