// What the split into processes costs: generation speed through all four daemons, measured where
// the client sees it (tokens on the HTTP stream), against the engine called in one process.
//
//   disaggregation_bench --model_file=FILE [--generate=128] [--pairs=7]
#include <iostream>

#include <boost/json.hpp>

#include "cli/daemon_set.h"
#include "cli/http_client.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/speed.h"
#include "tests/engine/local_engine.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(std::string, model_file, "", "GGUF file with a vocabulary.");
ABSL_FLAG(int32_t, generate, 128, "Tokens of each run.");
ABSL_FLAG(int32_t, pairs, 7, "Alternating runs of both.");

namespace strata::bench {
namespace {

constexpr char kAddress[] = "127.0.0.1:18437";

// Measures between the first and the last token, so that prompt and connection do not count.
class TokenClock {
 public:
  void Token() {
    const auto now = std::chrono::steady_clock::now();
    if (count_++ == 0) first_ = now;
    last_ = now;
  }
  double TokensPerSecond() const {
    return (count_ - 1) / std::chrono::duration<double>(last_ - first_).count();
  }

 private:
  int count_ = 0;
  std::chrono::steady_clock::time_point first_, last_;
};

class ClockSink final : public compute::GenerateSink {
 public:
  void OnProgress(const v1::Progress&) override {}
  void OnTokens(const v1::TokenBatch& tokens) override {
    for (int i = 0; i < tokens.tokens_size(); ++i) clock.Token();
  }
  void OnFinish(const absl::Status&, const v1::Finish&) override {
    done = true;
    done.notify_all();
  }
  TokenClock clock;
  std::atomic<bool> done{false};
};

absl::StatusOr<double> InOneProcess(compute::Engine& engine, const std::vector<uint32_t>& prompt) {
  auto sink = std::make_shared<ClockSink>();
  STRATA_RETURN_IF_ERROR(
      engine
          .Generate(compute::Request(prompt, static_cast<uint32_t>(absl::GetFlag(FLAGS_generate))),
                    sink)
          .status());
  sink->done.wait(false);
  return sink->clock.TokensPerSecond();
}

absl::StatusOr<double> ThroughDaemons(const std::vector<uint32_t>& prompt) {
  boost::json::array ids(prompt.begin(), prompt.end());
  const boost::json::object request = {{"prompt", ids},
                                       {"max_tokens", absl::GetFlag(FLAGS_generate)},
                                       {"temperature", 0},
                                       {"ignore_eos", true},
                                       {"stream", true}};
  TokenClock clock;
  STRATA_ASSIGN_OR_RETURN(
      const cli::HttpResponse response,
      cli::HttpPostStream(kAddress, "/v1/completions", "", boost::json::serialize(request),
                          [&](std::string_view data) {
                            if (data.find("\"text\":\"") != std::string_view::npos) clock.Token();
                            return true;
                          }));
  if (response.status != 200) return absl::InternalError(response.body);
  return clock.TokensPerSecond();
}

absl::Status Main() {
  v1::Config config;
  config.set_model(absl::GetFlag(FLAGS_model_file));
  STRATA_ASSIGN_OR_RETURN(const cli::RuntimeFolder folder, cli::RuntimeFolder::Create());
  config.set_runtime_dir(folder.path());
  config.set_state_dir(folder.path());
  config.mutable_gateway()->add_listen(kAddress);
  config.mutable_compute()->set_context_length(1024);
  STRATA_RETURN_IF_ERROR(cli::CompleteForUser(config));
  STRATA_RETURN_IF_ERROR(config::FillDefaults(config));
  STRATA_ASSIGN_OR_RETURN(
      const cli::PrivateDaemons daemons,
      cli::PrivateDaemons::Start(config, {"expertstore", "kvstore", "compute", "gateway"}));
  STRATA_RETURN_IF_ERROR(cli::AwaitHealthy(kAddress));
  STRATA_ASSIGN_OR_RETURN(const auto runtime, compute::OpenLocal(config.model(), config.compute()));
  const std::vector<uint32_t> prompt =
      PromptTokens(config.model(), static_cast<uint32_t>(runtime->model().info().vocab_size), 32);

  std::vector<double> alone, split, ratios;
  for (int pair = 0; pair <= absl::GetFlag(FLAGS_pairs); ++pair) {
    STRATA_ASSIGN_OR_RETURN(const double one, InOneProcess(runtime->engine(), prompt));
    STRATA_ASSIGN_OR_RETURN(const double four, ThroughDaemons(prompt));
    if (pair == 0) continue;  // warms both
    alone.push_back(one);
    split.push_back(four);
    ratios.push_back(four / one);
  }
  std::cout << absl::StreamFormat(
      "one process %.2f tok/s, four daemons %.2f tok/s, ratio %.3f (median of %d pairs)\n",
      Median(alone), Median(split), Median(ratios), absl::GetFlag(FLAGS_pairs));
  return absl::OkStatus();
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) { return strata::bench::RunMain(argc, argv, strata::bench::Main); }
