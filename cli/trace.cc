// `strata trace OUT`: records which experts a model uses on a text, for `strata simulate`.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "cli/bench_text.h"
#include "cli/command.h"
#include "cli/compute_client.h"
#include "cli/daemon_set.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/gguf/reader.h"
#include "common/tokenizer/tokenizer.h"
#include "common/trace/routing_trace.h"

#include "absl/flags/flag.h"

ABSL_FLAG(std::string, trace_text, "", "trace: file with the prompt; empty: a built-in text.");
ABSL_FLAG(uint32_t, trace_prompt, 512, "trace: tokens of the text that are read.");
ABSL_FLAG(uint32_t, trace_generate, 256, "trace: tokens generated after them.");
ABSL_FLAG(double, trace_temperature, 0.8,
          "trace: of the generation. Not 0: text that repeats itself uses few experts.");

namespace strata::cli {
namespace {

absl::StatusOr<std::vector<uint32_t>> Prompt(const std::string& model_path) {
  std::string text(kBenchText);
  if (const std::string path = absl::GetFlag(FLAGS_trace_text); !path.empty()) {
    const std::ifstream file(path);
    std::stringstream content;
    content << file.rdbuf();
    if (!file) return absl::NotFoundError(absl::StrCat("--trace_text: cannot read '", path, "'"));
    text = content.str();
  }
  STRATA_ASSIGN_OR_RETURN(const auto model, gguf::Model::Open(model_path));
  STRATA_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::FromGguf(model->metadata()));
  std::vector<uint32_t> tokens = tokenizer->Encode(text, /*parse_special=*/false);
  tokens.resize(std::min<size_t>(tokens.size(), absl::GetFlag(FLAGS_trace_prompt)));
  if (tokens.empty()) return absl::InvalidArgumentError("--trace_text: the text has no tokens");
  return tokens;
}

}  // namespace

absl::Status Trace(std::span<const std::string> arguments) {
  STRATA_RETURN_IF_ERROR(ExpectAtMost(arguments, 1));
  if (arguments.empty()) {
    return absl::InvalidArgumentError("which file to write? strata trace OUT --model=FILE");
  }
  STRATA_ASSIGN_OR_RETURN(v1::Config config, config::FromFlagsWithoutDefaults());
  STRATA_ASSIGN_OR_RETURN(const RuntimeFolder folder, RuntimeFolder::Create());
  if (config.runtime_dir().empty()) config.set_runtime_dir(folder.path());
  config.set_state_dir(folder.path());
  STRATA_RETURN_IF_ERROR(CompleteForUser(config));
  v1::ComputeConfig& compute = *config.mutable_compute();
  compute.set_trace_file(std::filesystem::absolute(arguments[0]).string());
  compute.set_kvstore("none");
  STRATA_RETURN_IF_ERROR(config::FillDefaults(config));
  STRATA_ASSIGN_OR_RETURN(const std::vector<uint32_t> prompt, Prompt(config.model()));
  {
    STRATA_ASSIGN_OR_RETURN(const PrivateDaemons daemons,
                            PrivateDaemons::Start(config, {"expertstore", "compute"}));
    STRATA_ASSIGN_OR_RETURN(ComputeClient client,
                            ComputeClient::Connect(compute.listen(), config.tls()));
    v1::SamplingParams sampling;
    sampling.set_temperature(static_cast<float>(absl::GetFlag(FLAGS_trace_temperature)));
    STRATA_RETURN_IF_ERROR(
        client.Generate(prompt, absl::GetFlag(FLAGS_trace_generate), sampling).status());
  }  // the file is complete when compute has ended
  STRATA_ASSIGN_OR_RETURN(const trace::RoutingTrace trace, trace::ReadFile(arguments[0]));
  uint64_t prompt_choices = 0;
  uint64_t choices = 0;
  for (const trace::Batch& batch : trace.batches) {
    for (const trace::Use& use : batch.uses)
      (batch.prompt ? prompt_choices : choices) += use.tokens;
  }
  std::cout << arguments[0] << ": " << trace.layers << " layers x " << trace.experts << " experts, "
            << trace.used << " used; " << prompt_choices << " choices of " << prompt.size()
            << " prompt tokens, " << choices << " of generated ones\n";
  return absl::OkStatus();
}

}  // namespace strata::cli
