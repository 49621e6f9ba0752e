// `strata bench model`: prompt and generation speed through the daemons, beside what memory allows.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "cli/bench.h"
#include "cli/bench_text.h"
#include "cli/compute_client.h"
#include "cli/daemon_set.h"
#include "common/base/read_bandwidth.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/gguf/model_cost.h"
#include "common/tokenizer/tokenizer.h"

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(std::string, compute, "",
          "bench model: address of a running compute daemon; empty starts private daemons.");
ABSL_FLAG(std::vector<std::string>, prompts, (std::vector<std::string>{"512", "2048"}),
          "bench model: tokens of the prompt tests.");
ABSL_FLAG(uint32_t, generate, 128, "bench model: tokens of the generation tests.");
ABSL_FLAG(std::vector<std::string>, depths, (std::vector<std::string>{"0", "4096", "16384"}),
          "bench model: tokens already read when a generation test begins.");
ABSL_FLAG(uint32_t, repetitions, 5,
          "bench model: runs of each test, fewer if it takes longer than a minute; the table has "
          "their median.");
ABSL_FLAG(std::string, text, "",
          "bench model: file with the text of the prompts; empty: a built-in one.");

namespace strata::cli {
namespace {

constexpr std::chrono::seconds kMostSeconds{60};  // of one test
// No generation starts from nothing: at depth 0 it continues these.
constexpr uint32_t kShortestPrompt = 32;

absl::StatusOr<std::string> BenchText() {
  const std::string path = absl::GetFlag(FLAGS_text);
  if (path.empty()) return std::string(kBenchText);
  const std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat("--text: cannot read '", path, "'"));
  return text.str();
}

struct Test {
  std::string name;
  uint32_t prompt;
  uint32_t generate;  // 0: the prompt is what is measured
};

absl::StatusOr<uint32_t> Number(const std::string& flag, const std::string& text) {
  uint32_t number = 0;
  if (absl::SimpleAtoi(text, &number)) return number;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": '", text, "' is not a number of tokens"));
}

absl::StatusOr<std::vector<Test>> Tests() {
  std::vector<Test> tests;
  for (const std::string& text : absl::GetFlag(FLAGS_prompts)) {
    STRATA_ASSIGN_OR_RETURN(const uint32_t tokens, Number("prompts", text));
    tests.push_back({absl::StrCat("pp", tokens), std::max(1u, tokens), 0});
  }
  const uint32_t generate = std::max(2u, absl::GetFlag(FLAGS_generate));
  for (const std::string& text : absl::GetFlag(FLAGS_depths)) {
    STRATA_ASSIGN_OR_RETURN(const uint32_t depth, Number("depths", text));
    const std::string name = absl::StrCat("tg", generate);
    tests.push_back({depth == 0 ? name : absl::StrCat(name, " @ d", depth),
                     std::max(kShortestPrompt, depth), generate});
  }
  return tests;
}

// Median tokens per second.
absl::StatusOr<double> Run(ComputeClient& client, const Test& test,
                           std::span<const uint32_t> text) {
  std::vector<uint32_t> prompt;
  while (prompt.size() < test.prompt) prompt.push_back(text[prompt.size() % text.size()]);
  const auto start = std::chrono::steady_clock::now();
  std::vector<double> speeds;
  do {
    STRATA_ASSIGN_OR_RETURN(const v1::Finish finish,
                            client.Generate(prompt, std::max(1u, test.generate)));
    speeds.push_back(test.generate == 0
                         ? 1000.0 * test.prompt / finish.timings().prompt_ms()
                         // The first token belongs to the prompt.
                         : 1000.0 * (test.generate - 1) / finish.timings().generation_ms());
  } while (speeds.size() < absl::GetFlag(FLAGS_repetitions) &&
           std::chrono::steady_clock::now() - start < kMostSeconds);
  std::sort(speeds.begin(), speeds.end());
  return speeds[speeds.size() / 2];
}

void PrintRow(const Test& test, double speed, const gguf::ModelCost& cost, double bandwidth) {
  std::cout << absl::StreamFormat("| %s | %.2f |", test.name, speed);
  if (test.generate == 0) {
    std::cout << " | | |\n" << std::flush;
    return;
  }
  const double bytes = static_cast<double>(cost.bytes_per_token()) +
                       static_cast<double>(cost.kv_bytes_per_token.value_or(0)) *
                           (test.prompt + test.generate / 2.0);
  const double rate = speed * bytes;
  std::cout << absl::StreamFormat(" %.1f | %.2f | %.0f %% |\n", bytes / 1e6, rate / 1e9,
                                  100 * rate / bandwidth)
            << std::flush;
}

}  // namespace

absl::Status BenchModel() {
  STRATA_ASSIGN_OR_RETURN(const std::vector<Test> tests, Tests());
  STRATA_ASSIGN_OR_RETURN(v1::Config config, config::FromFlagsWithoutDefaults());
  STRATA_ASSIGN_OR_RETURN(const RuntimeFolder folder, RuntimeFolder::Create());
  if (config.runtime_dir().empty()) config.set_runtime_dir(folder.path());
  config.set_state_dir(folder.path());  // nothing of a benchmark is worth keeping
  STRATA_RETURN_IF_ERROR(CompleteForUser(config));
  STRATA_RETURN_IF_ERROR(config::FillDefaults(config));
  STRATA_ASSIGN_OR_RETURN(
      const double bandwidth,
      MeasureReadBandwidth(static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))));

  STRATA_ASSIGN_OR_RETURN(const auto model, gguf::Model::Open(config.model()));
  STRATA_ASSIGN_OR_RETURN(const auto geometry, gguf::ReadExpertGeometry(*model));
  STRATA_ASSIGN_OR_RETURN(const gguf::ModelCost cost, gguf::EstimateCost(*model, geometry));
  STRATA_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::FromGguf(model->metadata()));
  STRATA_ASSIGN_OR_RETURN(const std::string text, BenchText());
  const std::vector<uint32_t> tokens = tokenizer->Encode(text, /*parse_special=*/false);
  if (tokens.empty()) return absl::InvalidArgumentError("the benchmark's text has no tokens");

  std::optional<PrivateDaemons> daemons;
  std::string address = absl::GetFlag(FLAGS_compute);
  if (address.empty()) {
    STRATA_ASSIGN_OR_RETURN(PrivateDaemons started,
                            PrivateDaemons::Start(config, {"expertstore", "kvstore", "compute"}));
    daemons.emplace(std::move(started));
    address = config.compute().listen();
  }
  STRATA_ASSIGN_OR_RETURN(ComputeClient client, ComputeClient::Connect(address, config.tls()));

  // Memory and caches are warm before anything counts.
  for (const Test& warm : {Test{"", 256, 0}, Test{"", kShortestPrompt, 32}}) {
    STRATA_RETURN_IF_ERROR(Run(client, warm, tokens).status());
  }
  std::cout << absl::StreamFormat("model %s; memory reads %.1f GB/s\n\n", config.model(),
                                  bandwidth / 1e9)
            << "| test | tok/s | MB/token | GB/s | of bandwidth |\n|---|---|---|---|---|\n";
  std::string left_out;
  for (const Test& test : tests) {
    if (test.prompt + std::max(1u, test.generate) > client.context_length()) {
      absl::StrAppend(&left_out, left_out.empty() ? "" : ", ", test.name);
      continue;
    }
    STRATA_ASSIGN_OR_RETURN(const double speed, Run(client, test, tokens));
    PrintRow(test, speed, cost, bandwidth);
  }
  if (!left_out.empty()) {
    std::cout << "\nleft out, because a sequence may have " << client.context_length()
              << " tokens here: " << left_out << "\n";
  }
  return absl::OkStatus();
}

}  // namespace strata::cli
