// How far a spliced read of an edited text is from a full read of it, on one model in this process.
// What the test bounds and the benchmark tabulates.
//
// A text's beginning is read and kept; each edit of it (cli/splice_eval.h) is then read in full and
// spliced, and both predict the tokens that follow in the text.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/splice_eval.h"
#include "common/tokenizer/tokenizer.h"
#include "services/kvstore/align/test_corpus.h"
#include "tests/engine/local_engine.h"
#include "tests/engine/memory_store.h"

#include "absl/status/statusor.h"

namespace strata::compute {

using Tokens = std::vector<uint32_t>;

// Sums over edits and texts, one part for each.
struct SpliceError {
  double mean_kl = 0;           // nats
  double p99_kl = 0;            // mean of the parts' p99
  double same_top = 0;          // share of positions
  double same_where_sure = 0;   // of those where two full reads agree that differ in rounding only
  double perplexity_ratio = 0;  // mean of the parts'
  int parts = 0;
  void Add(const SpliceError& part);  // `part` is one measurement
};

class SpliceLab {
 public:
  struct Options {
    std::string model = "deploy/demo/strata-demo.gguf";
    std::string isa = "auto";  // "scalar": activations are not rounded to 8 bits
    size_t prompt_tokens = 600;
    size_t positions = 128;  // predicted tokens
  };
  static absl::StatusOr<std::unique_ptr<SpliceLab>> Open(const Options& options);

  // Reads and keeps whole lines of at least prompt_tokens from the text's beginning; returns them.
  // OutOfRange if fewer than `positions` tokens follow.
  absl::StatusOr<std::string> Use(std::string_view text);

  // Full reads of a prompt: with K/V in F16, and in F32. They differ in nothing but rounding.
  struct FullReads {
    Tokens prompt;
    std::vector<float> exact;
    std::vector<float> other;
  };
  absl::StatusOr<FullReads> ReadInFull(const std::string& prompt);
  SpliceError ErrorOfRounding(const FullReads& full) const;
  absl::StatusOr<SpliceError> ErrorOf(const FullReads& full, v1::SpliceMode mode, double budget);

  // Of the tokens of the prompt, those that a splice moves.
  size_t MovedTokens(const FullReads& full);

  // ln p(fact) behind a prompt in which the stored text's other fact was replaced by it, less that
  // of the stored one: positive if the new text answers. Keeps `stored` first.
  absl::StatusOr<double> Needle(const std::string& stored, const std::string& prompt,
                                std::string_view stored_fact, std::string_view fact,
                                v1::SpliceMode mode, double budget);

 private:
  SpliceLab() = default;
  Tokens Encode(std::string_view text) const;
  absl::Status Keep(std::string_view text);
  v1::RestorePlan Plan(const Tokens& prompt, v1::SpliceMode mode);
  absl::StatusOr<std::vector<float>> Score(Runtime& runtime, const Tokens& prompt,
                                           const Tokens& next, const v1::RestorePlan& plan,
                                           double budget) const;
  SpliceError Compare(const FullReads& full, std::span<const float> actual) const;

  Options options_;
  MemoryStore store_;
  std::unique_ptr<kvstore::TestCorpus> corpus_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Runtime> other_rounding_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  Tokens stored_;
  Tokens continuation_;  // positions + 1 tokens
};

}  // namespace strata::compute
