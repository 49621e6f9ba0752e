// Strata and llama.cpp on the same file with the same threads, run alternately.
//
//   vs_llama --model=FILE [--threads=2] [--prompt=512] [--generate=64] [--depth=1] [--pairs=5]
//
// Prints both speeds and their ratio (median of the pairs), and what generation reads of the
// weights, also as a share of the bandwidth that was measured before and after. Each runs as its
// users run it: Strata as daemons (compute and its stores; the speeds are those that its responses
// report), llama.cpp with F16 K/V, flash attention, repacked weights, the CPU library it chooses
// itself for this processor.
#include <algorithm>
#include <iostream>

#include "cli/compute_client.h"
#include "cli/daemon_set.h"
#include "common/base/read_bandwidth.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/gguf/expert_geometry.h"
#include "common/gguf/model_cost.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/speed.h"
#include "tests/oracle/llama_model.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(std::string, model, "", "GGUF file that both engines know.");
ABSL_FLAG(int32_t, threads, 2, "Threads of each engine.");
ABSL_FLAG(uint32_t, prompt, 512, "Tokens of the prompt test.");
ABSL_FLAG(uint32_t, generate, 64, "Tokens of the generation test.");
ABSL_FLAG(uint32_t, depth, 1, "Tokens already read when the generation test begins.");
ABSL_FLAG(std::string, isa, "auto",
          "Instruction set of Strata's kernels; llama.cpp takes the best library in its folder.");
ABSL_FLAG(int32_t, pairs, 5, "Alternating runs of both engines.");

namespace strata::bench {
namespace {

// What is read for the prompt test, and what is there before the generation test.
struct Texts {
  std::vector<uint32_t> prompt;
  std::vector<uint32_t> context;
};

absl::StatusOr<Speed> RunStrata(cli::ComputeClient& compute, const Texts& texts) {
  const uint32_t count = absl::GetFlag(FLAGS_generate);
  STRATA_ASSIGN_OR_RETURN(const v1::Finish read, compute.Generate(texts.prompt, 1));
  STRATA_ASSIGN_OR_RETURN(const v1::Finish wrote, compute.Generate(texts.context, count + 1));
  return Speed{1000 * static_cast<double>(texts.prompt.size()) / read.timings().prompt_ms(),
               1000.0 * count / wrote.timings().generation_ms()};
}

absl::StatusOr<Speed> RunLlama(oracle::LlamaModel& llama, const Texts& texts) {
  const std::vector<int32_t> tokens(texts.prompt.begin(), texts.prompt.end());
  const std::vector<int32_t> context(texts.context.begin(), texts.context.end());
  Speed speed;
  llama.Reset();
  const Stopwatch reading;
  STRATA_RETURN_IF_ERROR(llama.Append(tokens));
  speed.prompt = static_cast<double>(tokens.size()) / reading.Seconds();
  llama.Reset();
  STRATA_RETURN_IF_ERROR(llama.Append(context));
  const uint32_t count = absl::GetFlag(FLAGS_generate);
  const Stopwatch writing;
  for (uint32_t i = 0; i < count; ++i) {
    int32_t next = llama.MostLikely();
    STRATA_RETURN_IF_ERROR(llama.Append(std::span(&next, 1)));
  }
  speed.generation = count / writing.Seconds();
  return speed;
}

absl::StatusOr<double> BytesPerToken(const std::string& path) {
  STRATA_ASSIGN_OR_RETURN(const auto model, gguf::Model::Open(path));
  STRATA_ASSIGN_OR_RETURN(const auto geometry, gguf::ReadExpertGeometry(*model));
  STRATA_ASSIGN_OR_RETURN(const gguf::ModelCost cost, gguf::EstimateCost(*model, geometry));
  return static_cast<double>(cost.bytes_per_token());
}

absl::Status Main() {
  const std::string path = absl::GetFlag(FLAGS_model);
  if (oracle::LlamaLibrary::Get() == nullptr) {
    return absl::NotFoundError(oracle::LlamaLibrary::WhyMissing());
  }
  const int threads = absl::GetFlag(FLAGS_threads);
  const uint32_t depth = std::max(1U, absl::GetFlag(FLAGS_depth));
  const uint32_t context =
      std::max(absl::GetFlag(FLAGS_prompt), depth) + absl::GetFlag(FLAGS_generate) + 64;
  STRATA_ASSIGN_OR_RETURN(const double bytes, BytesPerToken(path));
  STRATA_ASSIGN_OR_RETURN(const double before, MeasureReadBandwidth(threads));
  v1::Config config;
  config.set_model(path);
  STRATA_ASSIGN_OR_RETURN(const cli::RuntimeFolder folder, cli::RuntimeFolder::Create());
  config.set_runtime_dir(folder.path());
  config.set_state_dir(folder.path());
  config.mutable_compute()->set_context_length(context);
  config.mutable_compute()->set_isa(absl::GetFlag(FLAGS_isa));
  config.mutable_compute()->set_threads(static_cast<uint32_t>(threads));
  STRATA_RETURN_IF_ERROR(config::FillDefaults(config));
  STRATA_ASSIGN_OR_RETURN(
      const cli::PrivateDaemons daemons,
      cli::PrivateDaemons::Start(config, {"expertstore", "kvstore", "compute"}));
  STRATA_ASSIGN_OR_RETURN(cli::ComputeClient compute,
                          cli::ComputeClient::Connect(config.compute().listen(), config.tls()));
  oracle::LlamaModelOptions options;
  options.threads = threads;
  options.context = context;
  options.cache = TensorType::kF16;
  options.flash_attention = true;
  options.repack_weights = true;
  STRATA_ASSIGN_OR_RETURN(const auto llama,
                          oracle::LlamaModel::Load(*oracle::LlamaLibrary::Get(), path, options));
  const auto words = [&](uint32_t count) {
    return PromptTokens(path, static_cast<uint32_t>(llama->vocabulary_size()), count);
  };
  const Texts texts{words(absl::GetFlag(FLAGS_prompt)), words(depth)};

  std::vector<double> prompt_ratios, generation_ratios;
  std::vector<double> ours[2], theirs[2];
  for (int pair = 0; pair <= absl::GetFlag(FLAGS_pairs); ++pair) {
    STRATA_ASSIGN_OR_RETURN(const Speed strata, RunStrata(compute, texts));
    STRATA_ASSIGN_OR_RETURN(const Speed peer, RunLlama(*llama, texts));
    if (pair == 0) continue;  // warms caches and page tables
    prompt_ratios.push_back(strata.prompt / peer.prompt);
    generation_ratios.push_back(strata.generation / peer.generation);
    ours[0].push_back(strata.prompt);
    ours[1].push_back(strata.generation);
    theirs[0].push_back(peer.prompt);
    theirs[1].push_back(peer.generation);
  }
  STRATA_ASSIGN_OR_RETURN(const double after, MeasureReadBandwidth(threads));
  const double bandwidth = std::max(before, after);
  const double reads = Median(ours[1]) * bytes;
  const double peer_reads = Median(theirs[1]) * bytes;
  std::cout << "| test | strata tok/s | llama.cpp tok/s | ratio |\n|---|---|---|---|\n"
            << absl::StreamFormat("| pp%d | %.1f | %.1f | %.2f |\n", texts.prompt.size(),
                                  Median(ours[0]), Median(theirs[0]), Median(prompt_ratios))
            << absl::StreamFormat("| tg%d @ d%d | %.2f | %.2f | %.2f |\n",
                                  absl::GetFlag(FLAGS_generate), depth, Median(ours[1]),
                                  Median(theirs[1]), Median(generation_ratios))
            << absl::StreamFormat(
                   "\n%.1f MB of weights a token: %.1f and %.1f GB/s, %.0f %% and %.0f %% of %.1f "
                   "GB/s (before: %.1f, after: %.1f)\n",
                   bytes / 1e6, reads / 1e9, peer_reads / 1e9, 100 * reads / bandwidth,
                   100 * peer_reads / bandwidth, bandwidth / 1e9, before / 1e9, after / 1e9);
  return absl::OkStatus();
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) { return strata::bench::RunMain(argc, argv, strata::bench::Main); }
