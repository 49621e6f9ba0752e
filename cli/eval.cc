// `strata eval splice`: what moving text instead of reading it costs in quality and saves in time,
// with this model, on a text of one's own. Runs private daemons with an empty store.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "cli/bench_text.h"
#include "cli/command.h"
#include "cli/daemon_set.h"
#include "cli/splice_eval.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/gguf/reader.h"
#include "common/rpc/channel.h"
#include "common/tokenizer/line_starts.h"
#include "common/tokenizer/tokenizer.h"
#include "strata/v1/compute.grpc.pb.h"
#include "strata/v1/kvstore.grpc.pb.h"

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(std::string, splice_text, "",
          "eval splice: file with the text; its end is what the model continues. Empty: a built-in "
          "one.");
ABSL_FLAG(uint32_t, splice_positions, 128, "eval splice: tokens at the end that are predicted.");
ABSL_FLAG(std::vector<std::string>, splice_budgets,
          (std::vector<std::string>{"0.05", "0.1", "0.15", "0.3"}),
          "eval splice: shares of the moved tokens that splice = safe reads again.");

namespace strata::cli {
namespace {

using Tokens = std::vector<uint32_t>;
using std::chrono::milliseconds;

constexpr milliseconds kStartTimeout{120'000};
constexpr milliseconds kPlanTimeout{10'000};
constexpr milliseconds kSaveTimeout{60'000};
constexpr milliseconds kSavePause{50};
constexpr std::string_view kNeedle = "The access code of the archive is ";
constexpr std::string_view kOldFact = "4711.";
constexpr std::string_view kNewFact = "8302.";

struct Mode {
  std::string name;
  v1::SpliceMode splice;
  float budget;
};

absl::StatusOr<std::vector<Mode>> Modes() {
  std::vector<Mode> modes = {{"off", v1::SPLICE_OFF, 0}, {"fast", v1::SPLICE_FAST, 0}};
  for (const std::string& text : absl::GetFlag(FLAGS_splice_budgets)) {
    float budget = 0;
    if (!absl::SimpleAtof(text, &budget) || budget < 0 || budget > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--splice_budgets: '", text, "' is not a share from 0 to 1"));
    }
    modes.push_back({absl::StrCat("safe ", text), v1::SPLICE_SAFE, budget});
  }
  return modes;
}

// compute and kvstore, as the gateway uses them.
class Daemons {
 public:
  static absl::StatusOr<Daemons> Connect(const v1::Config& config) {
    Daemons daemons;
    STRATA_ASSIGN_OR_RETURN(const auto compute,
                            rpc::Connect(config.compute().listen(), config.tls()));
    STRATA_ASSIGN_OR_RETURN(const auto kvstore,
                            rpc::Connect(config.kvstore().listen(), config.tls()));
    daemons.compute_ = v1::Compute::NewStub(compute);
    daemons.kvstore_ = v1::KvStore::NewStub(kvstore);
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    rpc::PrepareCall(context, "eval", kStartTimeout);
    STRATA_RETURN_IF_ERROR(
        rpc::FromGrpc(daemons.compute_->Describe(&context, {}, &daemons.description_)));
    return daemons;
  }

  const v1::DescribeResponse& description() const { return description_; }

  absl::StatusOr<v1::RestorePlan> Plan(const Tokens& prompt, const Tokens& lines,
                                       v1::SpliceMode mode) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    rpc::PrepareCall(context, "eval", kPlanTimeout);
    v1::PlanRequest request;
    *request.mutable_key()->mutable_fingerprint() = description_.fingerprint();
    *request.mutable_key()->mutable_layout() = description_.state_layout();
    request.mutable_tokens()->mutable_ids()->Assign(prompt.begin(), prompt.end());
    request.mutable_line_starts()->Assign(lines.begin(), lines.end());
    request.set_splice(mode);
    v1::PlanResponse response;
    STRATA_RETURN_IF_ERROR(rpc::FromGrpc(kvstore_->Plan(&context, request, &response)));
    return std::move(*response.mutable_plan());
  }

  // Reads a prompt, generates one token.
  absl::StatusOr<v1::Finish> Read(const Tokens& prompt, const v1::RestorePlan& plan, float budget,
                                  bool save) {
    grpc::ClientContext context;
    rpc::PrepareCall(context, "eval", milliseconds(0));
    v1::GenerateRequest request;
    request.mutable_prompt()->mutable_ids()->Assign(prompt.begin(), prompt.end());
    request.set_max_tokens(1);
    *request.mutable_restore() = plan;
    request.set_splice_budget(budget);
    request.set_save_state(save);
    const auto reader = compute_->Generate(&context, request);
    v1::Finish finish;
    for (v1::GenerateEvent event; reader->Read(&event);) {
      if (event.has_finish()) finish = event.finish();
    }
    STRATA_RETURN_IF_ERROR(rpc::FromGrpc(reader->Finish()));
    return finish;
  }

  struct Scores {
    std::vector<float> distribution;  // [positions][vocabulary]
    double logprob = 0;               // of the continuation
  };
  // The continuation's tokens behind a prompt.
  absl::StatusOr<Scores> Score(const Tokens& prompt, const Tokens& continuation,
                               const v1::RestorePlan& plan, float budget, bool distribution) {
    grpc::ClientContext context;
    rpc::PrepareCall(context, "eval", milliseconds(0));
    v1::ScoreRequest request;
    request.mutable_tokens()->mutable_ids()->Assign(prompt.begin(), prompt.end());
    for (const uint32_t t : continuation) request.mutable_tokens()->add_ids(t);
    request.set_first_position(static_cast<uint32_t>(prompt.size()) - 1);
    *request.mutable_restore() = plan;
    request.set_splice_budget(budget);
    request.set_distribution(distribution);
    const auto reader = compute_->Score(&context, request);
    Scores scores;
    for (v1::ScoreChunk chunk; reader->Read(&chunk);) {
      for (const float p : chunk.logprobs()) scores.logprob += double{p};
      const size_t had = scores.distribution.size();
      scores.distribution.resize(had + chunk.distribution().size() / sizeof(float));
      std::memcpy(scores.distribution.data() + had, chunk.distribution().data(),
                  chunk.distribution().size());
    }
    STRATA_RETURN_IF_ERROR(rpc::FromGrpc(reader->Finish()));
    return scores;
  }

  // Reads a prompt and waits until its whole blocks are stored: they are sent behind the answer.
  absl::Status Keep(const Tokens& prompt) {
    STRATA_RETURN_IF_ERROR(Read(prompt, {}, 0, /*save=*/true).status());
    const uint32_t block = description_.state_layout().block_tokens();
    const uint32_t whole = static_cast<uint32_t>(prompt.size()) / block * block;
    const auto give_up = std::chrono::steady_clock::now() + kSaveTimeout;
    for (;;) {
      STRATA_ASSIGN_OR_RETURN(const v1::RestorePlan plan, Plan(prompt, {}, v1::SPLICE_OFF));
      if (plan.reused_tokens() >= whole) return absl::OkStatus();
      if (std::chrono::steady_clock::now() > give_up) {
        return absl::DeadlineExceededError("kvstore did not store the prompt; see its log");
      }
      std::this_thread::sleep_for(kSavePause);
    }
  }

 private:
  Daemons() = default;
  std::unique_ptr<v1::Compute::Stub> compute_;
  std::unique_ptr<v1::KvStore::Stub> kvstore_;
  v1::DescribeResponse description_;
};

class Evaluation {
 public:
  Evaluation(Daemons& daemons, const tokenizer::Tokenizer& tokenizer)
      : daemons_(daemons), tokenizer_(tokenizer) {}

  absl::Status Edits(const std::string& text, const Tokens& continuation,
                     std::span<const Mode> modes) {
    STRATA_RETURN_IF_ERROR(daemons_.Keep(Encode(text)));
    std::cout << "| edit | splice | prompt | moved | not read | KL mean | KL p99 | same top | "
                 "perplexity | time to first token |\n|---|---|---|---|---|---|---|---|---|---|\n";
    for (const EditedText& edit : EditsOf(text)) {
      const Tokens prompt = Encode(edit.text);
      STRATA_ASSIGN_OR_RETURN(const auto expected,
                              daemons_.Score(prompt, continuation, {}, 0, true));
      STRATA_ASSIGN_OR_RETURN(const v1::Finish full, daemons_.Read(prompt, {}, 0, false));
      for (const Mode& mode : modes) {
        STRATA_ASSIGN_OR_RETURN(const v1::RestorePlan plan, Plan(prompt, mode.splice));
        STRATA_ASSIGN_OR_RETURN(const auto actual,
                                daemons_.Score(prompt, continuation, plan, mode.budget, true));
        STRATA_ASSIGN_OR_RETURN(const v1::Finish finish,
                                daemons_.Read(prompt, plan, mode.budget, false));
        const Difference d = Compare(expected.distribution, actual.distribution, continuation);
        uint32_t moved = 0;
        for (const v1::MovedRun& run : plan.runs()) moved += run.tokens();
        std::cout << absl::StreamFormat(
                         "| %s | %s | %u | %u | %u | %.5f | %.5f | %.3f | %.4f | %.3f |\n",
                         edit.name, mode.name, prompt.size(), moved, finish.usage().cached_tokens(),
                         d.mean_kl, d.p99_kl, d.same_top, d.perplexity_ratio,
                         finish.timings().prompt_ms() / full.timings().prompt_ms())
                  << std::flush;
      }
    }
    return absl::OkStatus();
  }

  // The stored text states one fact, the new one another: which one does the model repeat?
  absl::Status Needle(const std::string& text, std::span<const Mode> modes) {
    const size_t at = text.find('\n', text.size() / 4) + 1;
    const auto with = [&](std::string_view fact) {
      return absl::StrCat(text.substr(0, at), absl::string_view(kNeedle.data(), kNeedle.size()),
                          absl::string_view(fact.data(), fact.size()), "\n", text.substr(at));
    };
    STRATA_RETURN_IF_ERROR(daemons_.Keep(Encode(with(kOldFact))));
    const Tokens prompt = Encode(with(kNewFact) + std::string(kNeedle));
    const Tokens new_fact = Encode(std::string(kNewFact));
    const Tokens old_fact = Encode(std::string(kOldFact));
    std::cout << "\n| needle: splice | ln p(new fact) | ln p(old fact) | answered from |\n"
                 "|---|---|---|---|\n";
    for (const Mode& mode : modes) {
      STRATA_ASSIGN_OR_RETURN(const v1::RestorePlan plan, Plan(prompt, mode.splice));
      STRATA_ASSIGN_OR_RETURN(const auto current,
                              daemons_.Score(prompt, new_fact, plan, mode.budget, false));
      STRATA_ASSIGN_OR_RETURN(const auto outdated,
                              daemons_.Score(prompt, old_fact, plan, mode.budget, false));
      std::cout << absl::StreamFormat("| %s | %.2f | %.2f | %s text |\n", mode.name,
                                      current.logprob, outdated.logprob,
                                      current.logprob > outdated.logprob ? "the new" : "the OLD")
                << std::flush;
    }
    return absl::OkStatus();
  }

  Tokens Encode(const std::string& text) const {
    return tokenizer_.Encode(text, /*parse_special=*/false);
  }

 private:
  absl::StatusOr<v1::RestorePlan> Plan(const Tokens& prompt, v1::SpliceMode mode) {
    const Tokens lines =
        tokenizer::LineStarts(prompt, [&](uint32_t id) { return tokenizer_.Piece(id); });
    return daemons_.Plan(prompt, lines, mode);
  }

  Daemons& daemons_;
  const tokenizer::Tokenizer& tokenizer_;
};

absl::StatusOr<std::string> Text() {
  const std::string path = absl::GetFlag(FLAGS_splice_text);
  if (path.empty()) return std::string(kBenchText);
  const std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat("--splice_text: cannot read '", path, "'"));
  return text.str();
}

absl::Status EvalSplice() {
  STRATA_ASSIGN_OR_RETURN(const std::vector<Mode> modes, Modes());
  STRATA_ASSIGN_OR_RETURN(const std::string text, Text());
  STRATA_ASSIGN_OR_RETURN(v1::Config config, config::FromFlagsWithoutDefaults());
  STRATA_ASSIGN_OR_RETURN(const RuntimeFolder folder, RuntimeFolder::Create());
  config.set_runtime_dir(folder.path());
  config.set_state_dir(folder.path());  // what was stored before must not help
  config.mutable_compute()->set_expertstore("none");
  STRATA_RETURN_IF_ERROR(CompleteForUser(config));
  STRATA_RETURN_IF_ERROR(config::FillDefaults(config));
  STRATA_ASSIGN_OR_RETURN(const auto model, gguf::Model::Open(config.model()));
  STRATA_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::FromGguf(model->metadata()));
  STRATA_ASSIGN_OR_RETURN(const PrivateDaemons daemons,
                          PrivateDaemons::Start(config, {"kvstore", "compute"}));
  STRATA_ASSIGN_OR_RETURN(Daemons clients, Daemons::Connect(config));
  Evaluation evaluation(clients, *tokenizer);

  // The last line border that leaves enough tokens behind it.
  const uint32_t positions = std::max(1u, absl::GetFlag(FLAGS_splice_positions));
  size_t end = text.size();
  while (end > 0 && evaluation.Encode(text.substr(end)).size() < positions) {
    end = end < 2 ? 0 : text.rfind('\n', end - 2) + 1;
  }
  const std::string prompt = text.substr(0, end);
  const auto lines = std::count(prompt.begin(), prompt.end(), '\n');
  if (lines < 8) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text has ", lines, " lines before its last ", positions,
                     " tokens; 8 are needed: pass a longer --splice_text"));
  }
  Tokens continuation = evaluation.Encode(text.substr(end));
  continuation.resize(positions);
  STRATA_RETURN_IF_ERROR(evaluation.Edits(prompt, continuation, modes));
  return evaluation.Needle(prompt, modes);
}

}  // namespace

absl::Status Eval(std::span<const std::string> arguments) {
  if (arguments.size() != 1 || arguments[0] != "splice") {
    return absl::InvalidArgumentError("usage: strata eval splice [--model=FILE]");
  }
  return EvalSplice();
}

}  // namespace strata::cli
