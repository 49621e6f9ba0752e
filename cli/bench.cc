// `strata bench`: prompt and generation speed through the daemons, beside what memory allows.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>
#include <vector>

#include "cli/bandwidth.h"
#include "cli/bench_text.h"
#include "cli/command.h"
#include "cli/compute_client.h"
#include "cli/daemon_set.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/gguf/model_cost.h"
#include "common/tokenizer/tokenizer.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(std::string, compute, "",
          "bench: address of a running compute daemon; empty starts private daemons.");
ABSL_FLAG(uint32_t, prompt, 512, "bench: tokens of the prompt test.");
ABSL_FLAG(uint32_t, generate, 128, "bench: tokens of the generation test.");
ABSL_FLAG(uint32_t, repetitions, 5, "bench: runs of each test; the table has their median.");
ABSL_FLAG(std::string, text, "", "bench: file with the text of the prompt; empty: a built-in one.");

namespace strata::cli {
namespace {

absl::StatusOr<std::string> BenchText() {
  const std::string path = absl::GetFlag(FLAGS_text);
  if (path.empty()) return std::string(kBenchText);
  const std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat("--text: cannot read '", path, "'"));
  return text.str();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Row {
  std::string test;
  double tokens_per_second = 0;
  double bytes_per_token = 0;  // 0: not limited by memory
};

void PrintTable(const std::string& model, double bandwidth, const std::vector<Row>& rows) {
  std::cout << absl::StreamFormat("model %s; memory reads %.1f GB/s\n\n", model, bandwidth / 1e9);
  std::cout << "| test | tok/s | MB/token | GB/s | of bandwidth |\n|---|---|---|---|---|\n";
  for (const Row& row : rows) {
    std::cout << absl::StreamFormat("| %s | %.2f |", row.test, row.tokens_per_second);
    if (row.bytes_per_token == 0) {
      std::cout << " | | |\n";
      continue;
    }
    const double rate = row.tokens_per_second * row.bytes_per_token;
    std::cout << absl::StreamFormat(" %.1f | %.2f | %.0f %% |\n", row.bytes_per_token / 1e6,
                                    rate / 1e9, 100 * rate / bandwidth);
  }
}

}  // namespace

absl::Status Bench(std::span<const std::string> arguments) {
  STRATA_RETURN_IF_ERROR(ExpectAtMost(arguments, 0));
  STRATA_ASSIGN_OR_RETURN(v1::Config config, config::FromFlagsWithoutDefaults());
  STRATA_ASSIGN_OR_RETURN(const RuntimeFolder folder, RuntimeFolder::Create());
  if (config.runtime_dir().empty()) config.set_runtime_dir(folder.path());
  config.set_state_dir(folder.path());  // nothing of a benchmark is worth keeping
  STRATA_RETURN_IF_ERROR(CompleteForUser(config));
  STRATA_RETURN_IF_ERROR(config::FillDefaults(config));
  const double bandwidth =
      MeasureReadBandwidth(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));

  STRATA_ASSIGN_OR_RETURN(const auto model, gguf::Model::Open(config.model()));
  STRATA_ASSIGN_OR_RETURN(const auto geometry, gguf::ReadExpertGeometry(*model));
  STRATA_ASSIGN_OR_RETURN(const gguf::ModelCost cost, gguf::EstimateCost(*model, geometry));
  STRATA_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::FromGguf(model->metadata()));
  STRATA_ASSIGN_OR_RETURN(const std::string text, BenchText());
  const std::vector<uint32_t> once = tokenizer->Encode(text, /*parse_special=*/false);
  if (once.empty()) return absl::InvalidArgumentError("the benchmark's text has no tokens");
  const auto prompt = [&](size_t length) {
    std::vector<uint32_t> tokens;
    while (tokens.size() < length) tokens.push_back(once[tokens.size() % once.size()]);
    return tokens;
  };

  std::optional<PrivateDaemons> daemons;
  std::string address = absl::GetFlag(FLAGS_compute);
  if (address.empty()) {
    STRATA_ASSIGN_OR_RETURN(PrivateDaemons started,
                            PrivateDaemons::Start(config, {"expertstore", "kvstore", "compute"}));
    daemons.emplace(std::move(started));
    address = config.compute().listen();
  }
  STRATA_ASSIGN_OR_RETURN(ComputeClient client, ComputeClient::Connect(address, config.tls()));

  const uint32_t prompt_tokens = absl::GetFlag(FLAGS_prompt);
  const uint32_t generated = std::max(2u, absl::GetFlag(FLAGS_generate));
  std::vector<double> reading;
  std::vector<double> generating;
  // One run more than asked for: the first warms memory and caches and is not counted.
  for (uint32_t i = 0; i <= absl::GetFlag(FLAGS_repetitions); ++i) {
    STRATA_ASSIGN_OR_RETURN(const v1::Finish read, client.Generate(prompt(prompt_tokens), 1));
    STRATA_ASSIGN_OR_RETURN(const v1::Finish wrote, client.Generate(prompt(32), generated));
    if (i == 0) continue;
    reading.push_back(1000.0 * prompt_tokens / read.timings().prompt_ms());
    // The first token belongs to the prompt.
    generating.push_back(1000.0 * (generated - 1) / wrote.timings().generation_ms());
  }
  const double kv =
      static_cast<double>(cost.kv_bytes_per_token.value_or(0)) * (32 + generated / 2.0);
  PrintTable(config.model(), bandwidth,
             {{absl::StrCat("pp", prompt_tokens), Median(reading), 0},
              {absl::StrCat("tg", generated), Median(generating),
               static_cast<double>(cost.bytes_per_token()) + kv}});
  return absl::OkStatus();
}

}  // namespace strata::cli
