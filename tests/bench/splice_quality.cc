// What splicing costs in quality, on as much text as it takes to tell methods apart: the noise of a
// share near .97 is .5 percentage points at 1,200 positions.
//
//   splice_quality [--model=FILE] [--isa=scalar] [--texts=FILE,...] [--budgets=0.05,0.1]
//
// Every text is cut into pieces of --prompt_tokens and --positions tokens; every piece is edited in
// each way (cli/splice_eval.h). Prints the means.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>

#include "common/base/status.h"
#include "tests/bench/bench_main.h"
#include "tests/engine/splice_lab.h"

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(std::string, model, "deploy/demo/strata-demo.gguf", "Model file.");
ABSL_FLAG(std::string, isa, "auto", "Kernels; 'scalar' does not round activations to 8 bits.");
ABSL_FLAG(std::vector<std::string>, texts, {}, "Text files.");
ABSL_FLAG(std::vector<std::string>, budgets,
          (std::vector<std::string>{"0.05", "0.1", "0.12", "0.15", "0.3"}),
          "Shares of the moved tokens that splice = safe reads again.");
ABSL_FLAG(uint32_t, pieces, 8, "Pieces of each text at most.");
ABSL_FLAG(uint32_t, prompt_tokens, 600, "Tokens of a piece that are the prompt.");
ABSL_FLAG(uint32_t, positions, 128, "Tokens of a piece that are predicted.");

namespace strata::bench {
namespace {

using compute::SpliceError;
using compute::SpliceLab;

struct Row {
  std::string name;
  v1::SpliceMode mode;
  double budget;
  SpliceError error;
};

absl::StatusOr<std::vector<Row>> Rows() {
  std::vector<Row> rows = {{"fast", v1::SPLICE_FAST, 0, {}}};
  for (const std::string& text : absl::GetFlag(FLAGS_budgets)) {
    double budget = 0;
    if (!absl::SimpleAtod(text, &budget)) {
      return absl::InvalidArgumentError("--budgets: '" + text + "' is not a number");
    }
    rows.push_back({"safe " + text, v1::SPLICE_SAFE, budget, {}});
  }
  return rows;
}

// Agents' tool descriptions hold lines of thousands of tokens; a piece is made of whole lines.
std::string WithoutLongLines(const std::string& text) {
  constexpr size_t kLongest = 600;
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    if (end - at <= kLongest) kept.append(text, at, end - at);
    at = end;
  }
  return kept;
}

void Print(const std::string& name, const SpliceError& e) {
  std::cout << absl::StreamFormat("| %s | %.5f | %.4f | %.4f | %.4f | %.4f |\n", name, e.mean_kl,
                                  e.p99_kl, e.same_top, e.same_where_sure, e.perplexity_ratio);
}

absl::Status Main() {
  SpliceLab::Options options;
  options.model = absl::GetFlag(FLAGS_model);
  options.isa = absl::GetFlag(FLAGS_isa);
  options.prompt_tokens = absl::GetFlag(FLAGS_prompt_tokens);
  options.positions = absl::GetFlag(FLAGS_positions);
  STRATA_ASSIGN_OR_RETURN(std::unique_ptr<SpliceLab> lab, SpliceLab::Open(options));
  STRATA_ASSIGN_OR_RETURN(std::vector<Row> rows, Rows());
  SpliceError rounding;
  for (const std::string& path : absl::GetFlag(FLAGS_texts)) {
    std::ifstream file(path);
    if (!file) return absl::NotFoundError("cannot read '" + path + "'");
    std::string text = WithoutLongLines({std::istreambuf_iterator<char>(file), {}});
    for (uint32_t piece = 0; piece < absl::GetFlag(FLAGS_pieces); ++piece) {
      const absl::StatusOr<std::string> prompt = lab->Use(text);
      if (absl::IsOutOfRange(prompt.status())) break;
      STRATA_RETURN_IF_ERROR(prompt.status());
      for (const cli::EditedText& edit : cli::EditsOf(*prompt)) {
        STRATA_ASSIGN_OR_RETURN(const SpliceLab::FullReads full, lab->ReadInFull(edit.text));
        rounding.Add(lab->ErrorOfRounding(full));
        for (Row& row : rows) {
          STRATA_ASSIGN_OR_RETURN(const SpliceError error,
                                  lab->ErrorOf(full, row.mode, row.budget));
          row.error.Add(error);
        }
      }
      text.erase(0, std::min(text.size(), prompt->size() + prompt->size() / 4));
      text.erase(0, text.find('\n') + 1);
    }
  }
  std::cout << rounding.parts << " edits, "
            << static_cast<size_t>(rounding.parts) * options.positions << " positions\n"
            << "| | KL | p99 | same top | where full reads agree | perplexity |\n"
               "|---|---|---|---|---|---|\n";
  Print("rounding alone", rounding);
  for (const Row& row : rows) Print(row.name, row.error);
  return absl::OkStatus();
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) { return strata::bench::RunMain(argc, argv, strata::bench::Main); }
