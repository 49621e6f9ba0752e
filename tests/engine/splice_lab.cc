#include "tests/engine/splice_lab.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/tokenizer/line_starts.h"
#include "services/kvstore/align/aligner.h"

namespace strata::compute {
namespace {

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
  return static_cast<double>(same) / std::max(sure, 1);
}

}  // namespace

void SpliceError::Add(const SpliceError& part) {
  const auto mean = [n = static_cast<double>(parts)](double so_far, double next) {
    return (so_far * n + next) / (n + 1);
  };
  mean_kl = mean(mean_kl, part.mean_kl);
  p99_kl = mean(p99_kl, part.p99_kl);
  same_top = mean(same_top, part.same_top);
  same_where_sure = mean(same_where_sure, part.same_where_sure);
  perplexity_ratio = mean(perplexity_ratio, part.perplexity_ratio);
  ++parts;
}

absl::StatusOr<std::unique_ptr<SpliceLab>> SpliceLab::Open(const Options& options) {
  std::unique_ptr<SpliceLab> lab(new SpliceLab());
  lab->options_ = options;
  v1::ComputeConfig config = SmallConfig();
  config.set_isa(options.isa);
  STRATA_ASSIGN_OR_RETURN(lab->runtime_, OpenLocal(options.model, config, &lab->store_));
  config.set_kv_type("f32");
  STRATA_ASSIGN_OR_RETURN(lab->other_rounding_, OpenLocal(options.model, config));
  STRATA_ASSIGN_OR_RETURN(lab->tokenizer_,
                          tokenizer::Tokenizer::FromGguf(lab->runtime_->file().metadata()));
  return lab;
}

Tokens SpliceLab::Encode(std::string_view text) const {
  return tokenizer_->Encode(std::string(text), /*parse_special=*/false);
}

absl::StatusOr<std::string> SpliceLab::Use(std::string_view text) {
  size_t end = 0;
  while (Encode(text.substr(0, end)).size() < options_.prompt_tokens) {
    end = text.find('\n', end) + 1;
    if (end == 0) break;
  }
  continuation_ = Encode(text.substr(end));
  if (end == 0 || continuation_.size() <= options_.positions) {
    return absl::OutOfRangeError(absl::StrCat("a text needs ", options_.prompt_tokens, " and ",
                                              options_.positions, " tokens; this one has ",
                                              Encode(text).size()));
  }
  continuation_.resize(options_.positions + 1);
  std::string prompt(text.substr(0, end));
  STRATA_RETURN_IF_ERROR(Keep(prompt));
  return prompt;
}

absl::Status SpliceLab::Keep(std::string_view text) {
  corpus_ = std::make_unique<kvstore::TestCorpus>();
  stored_ = Encode(text);
  v1::GenerateRequest request = Request(stored_, 1);
  request.set_save_state(true);
  auto sink = std::make_shared<CollectingSink>();
  STRATA_RETURN_IF_ERROR(runtime_->engine().Generate(request, sink).status());
  STRATA_RETURN_IF_ERROR(sink->Wait());
  corpus_->Save(stored_);
  return absl::OkStatus();
}

v1::RestorePlan SpliceLab::Plan(const Tokens& prompt, v1::SpliceMode mode) {
  v1::RestorePlan plan = store_.Plan(*runtime_, prompt);
  plan.set_splice(mode);
  if (mode == v1::SPLICE_OFF) return plan;
  const auto lines =
      tokenizer::LineStarts(prompt, [&](uint32_t id) { return tokenizer_->Piece(id); });
  const v1::RestorePlan stored = store_.Plan(*runtime_, stored_);
  for (const kvstore::MovedRun& run :
       kvstore::Align(corpus_->seeds(), *corpus_, prompt, plan.reused_tokens(), lines, {})) {
    v1::MovedRun& moved = *plan.add_runs();
    moved.set_first_token(run.first_token);
    moved.set_tokens(run.tokens);
    moved.set_old_first_token(run.old_first_token);
    for (const v1::BlockRef& ref : stored.blocks()) {
      if (ref.first_token() + ref.tokens() > run.old_first_token &&
          ref.first_token() < run.old_first_token + run.tokens) {
        *moved.add_blocks() = ref;
      }
    }
  }
  return plan;
}

absl::StatusOr<std::vector<float>> SpliceLab::Score(Runtime& runtime, const Tokens& prompt,
                                                    const Tokens& next, const v1::RestorePlan& plan,
                                                    double budget) const {
  Tokens all = prompt;
  all.insert(all.end(), next.begin(), next.end());
  return ScoreDistribution(runtime.engine(), all, prompt.size(), plan, budget);
}

absl::StatusOr<SpliceLab::FullReads> SpliceLab::ReadInFull(const std::string& prompt) {
  FullReads full;
  full.prompt = Encode(prompt);
  STRATA_ASSIGN_OR_RETURN(full.exact, Score(*runtime_, full.prompt, continuation_, {}, 0));
  STRATA_ASSIGN_OR_RETURN(full.other, Score(*other_rounding_, full.prompt, continuation_, {}, 0));
  return full;
}

SpliceError SpliceLab::Compare(const FullReads& full, std::span<const float> actual) const {
  const std::span next = std::span(continuation_).subspan(1);
  const cli::Difference d = cli::Compare(full.exact, actual, next);
  return {d.mean_kl,          d.p99_kl,
          d.same_top,         SameTopWhereSure(full.exact, full.other, actual, next.size()),
          d.perplexity_ratio, 1};
}

SpliceError SpliceLab::ErrorOfRounding(const FullReads& full) const {
  return Compare(full, full.other);
}

absl::StatusOr<SpliceError> SpliceLab::ErrorOf(const FullReads& full, v1::SpliceMode mode,
                                               double budget) {
  STRATA_ASSIGN_OR_RETURN(
      const std::vector<float> actual,
      Score(*runtime_, full.prompt, continuation_, Plan(full.prompt, mode), budget));
  return Compare(full, actual);
}

size_t SpliceLab::MovedTokens(const FullReads& full) {
  size_t moved = 0;
  const v1::RestorePlan plan = Plan(full.prompt, v1::SPLICE_FAST);
  for (const v1::MovedRun& run : plan.runs()) moved += run.tokens();
  return moved;
}

absl::StatusOr<double> SpliceLab::Needle(const std::string& stored, const std::string& prompt,
                                         std::string_view stored_fact, std::string_view fact,
                                         v1::SpliceMode mode, double budget) {
  STRATA_RETURN_IF_ERROR(Keep(stored));
  const Tokens tokens = Encode(prompt);
  const v1::RestorePlan plan = Plan(tokens, mode);
  // The distribution behind a token is asked for, so the fact begins with the prompt's last one.
  const auto log_probability = [&](std::string_view answer) -> absl::StatusOr<double> {
    const Tokens begin(tokens.begin(), tokens.end() - 1);
    Tokens next = {tokens.back()};
    const Tokens answered = Encode(answer);
    next.insert(next.end(), answered.begin(), answered.end());
    STRATA_ASSIGN_OR_RETURN(const std::vector<float> rows,
                            Score(*runtime_, begin, next, plan, budget));
    const size_t vocabulary = rows.size() / answered.size();
    double sum = 0;
    for (size_t i = 0; i < answered.size(); ++i) {
      sum += double{rows[i * vocabulary + answered[i]]};
    }
    return sum;
  };
  STRATA_ASSIGN_OR_RETURN(const double with_new, log_probability(fact));
  STRATA_ASSIGN_OR_RETURN(const double with_old, log_probability(stored_fact));
  return with_new - with_old;
}

}  // namespace strata::compute
