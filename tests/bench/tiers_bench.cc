// One engine on a model that does not fit into memory: run it under a memory limit, once for each
// engine, and compare.
//
//   tiers_bench --engine=strata|llama --model=FILE [--percent=25] [--prompt=1200] [--generate=64]
//               [--routing=full|guarded|resident]
//
// strata: store and engine in this process, an arena of `percent` of the experts. llama: llama.cpp
// with the file mapped, weights not repacked, as its users run a model larger than memory. Each
// runs the prompt, then generates from a prompt of 32 tokens; a first generation is not counted.
// Drop the page cache before (echo 3 > /proc/sys/vm/drop_caches).
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <thread>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/gguf/expert_geometry.h"
#include "services/compute/experts/arena_expert_source.h"
#include "services/expertstore/plane/data_plane.h"
#include "tests/bench/speed.h"
#include "tests/engine/local_engine.h"
#include "tests/oracle/llama_model.h"

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(std::string, engine, "strata", "strata or llama.");
ABSL_FLAG(std::string, model, "", "GGUF file that both engines know.");
ABSL_FLAG(uint32_t, percent, 25, "Of the experts that the arena holds.");
ABSL_FLAG(uint32_t, prompt, 1200, "Tokens of the prompt.");
ABSL_FLAG(uint32_t, generate, 64, "Tokens generated.");
ABSL_FLAG(std::string, routing, "full", "Prompt routing of strata.");
ABSL_FLAG(uint32_t, chunk, 0, "Prompt tokens of a step of strata; 0 = the default.");

namespace strata::bench {
namespace {

constexpr uint32_t kShortPrompt = 32;

// What this process has read from drives so far.
uint64_t BytesRead() {
  std::ifstream io("/proc/self/io");
  std::string key;
  for (uint64_t value = 0; io >> key >> value;) {
    if (key == "read_bytes:") return value;
  }
  return 0;
}

void Print(const Speed& speed, uint64_t prompt_bytes, uint64_t bytes) {
  std::cout << absl::StreamFormat("| %s | %.2f | %.1f | %.3f | %.1f |\n",
                                  absl::GetFlag(FLAGS_engine), speed.prompt,
                                  static_cast<double>(prompt_bytes) / 1e6, speed.generation,
                                  static_cast<double>(bytes) / 1e6 / absl::GetFlag(FLAGS_generate));
}

absl::Status RunStrata(const std::vector<uint32_t>& prompt) {
  STRATA_ASSIGN_OR_RETURN(auto file, gguf::Model::Open(absl::GetFlag(FLAGS_model)));
  expertstore::DataPlaneOptions options;
  STRATA_ASSIGN_OR_RETURN(options.geometry, gguf::ReadExpertGeometry(*file));
  const auto hash = file->Fingerprint();
  std::memcpy(options.fingerprint.data(), hash.data(), options.fingerprint.size());
  options.experts_per_token = 8;
  STRATA_ASSIGN_OR_RETURN(const expertstore::SlotPlan all,
                          expertstore::PlanSlots(options.geometry, 1ull << 60, 1));
  options.arena_bytes = all.all_bytes * absl::GetFlag(FLAGS_percent) / 100;
  options.attach_path = absl::StrCat("/tmp/tiers_bench.", getpid(), ".sock");
  STRATA_ASSIGN_OR_RETURN(const auto plane, expertstore::DataPlane::Create(options));
  std::thread thread([&plane] { plane->Run(); });
  const auto run = [&]() -> absl::Status {
    auto source = std::make_unique<compute::ArenaExpertSource>(
        compute::ArenaExpertSource::Options{options.attach_path, options.fingerprint});
    STRATA_RETURN_IF_ERROR(source->WaitUntilReady(20000));
    v1::ComputeConfig config = compute::SmallConfig();
    config.set_spin_us(2000);
    config.set_max_sequences(1);
    config.set_prompt_routing(absl::GetFlag(FLAGS_routing));
    if (absl::GetFlag(FLAGS_chunk) > 0) config.set_chunk_tokens(absl::GetFlag(FLAGS_chunk));
    STRATA_ASSIGN_OR_RETURN(const auto runtime,
                            compute::Runtime::Open(std::move(file), config, std::move(source)));
    STRATA_RETURN_IF_ERROR(runtime->StartEngine(nullptr));
    const auto generate = [&](size_t tokens, uint32_t count) -> absl::StatusOr<v1::Timings> {
      auto sink = std::make_shared<compute::CollectingSink>();
      const auto request = compute::Request(std::span(prompt).first(tokens), count);
      STRATA_RETURN_IF_ERROR(runtime->engine().Generate(request, sink).status());
      STRATA_RETURN_IF_ERROR(sink->Wait());
      return sink->finish().timings();
    };
    while (plane->Status().counts.background_left > 0) std::this_thread::yield();
    const uint32_t count = absl::GetFlag(FLAGS_generate);
    STRATA_RETURN_IF_ERROR(generate(kShortPrompt, count).status());
    const uint64_t before = plane->Status().bytes_read;
    STRATA_ASSIGN_OR_RETURN(const v1::Timings read, generate(prompt.size(), 1));
    const uint64_t between = plane->Status().bytes_read;
    STRATA_ASSIGN_OR_RETURN(const v1::Timings wrote, generate(kShortPrompt, count + 1));
    Print({1000.0 * static_cast<double>(prompt.size()) / read.prompt_ms(),
           1000.0 * count / wrote.generation_ms()},
          between - before, plane->Status().bytes_read - between);
    return absl::OkStatus();
  };
  const absl::Status status = run();
  plane->Stop();
  thread.join();
  return status;
}

absl::Status RunLlama(const std::vector<uint32_t>& prompt) {
  if (oracle::LlamaLibrary::Get() == nullptr) {
    return absl::NotFoundError(oracle::LlamaLibrary::WhyMissing());
  }
  const uint32_t count = absl::GetFlag(FLAGS_generate);
  oracle::LlamaModelOptions options;
  options.context = static_cast<uint32_t>(prompt.size()) + count + kShortPrompt;
  options.f32_cache = false;
  options.flash_attention = true;
  STRATA_ASSIGN_OR_RETURN(
      const auto llama,
      oracle::LlamaModel::Load(*oracle::LlamaLibrary::Get(), absl::GetFlag(FLAGS_model), options));
  const std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  const auto generate = [&]() -> absl::StatusOr<double> {
    llama->Reset();
    STRATA_RETURN_IF_ERROR(llama->Append(std::span(tokens).first(kShortPrompt)));
    const Stopwatch watch;
    for (uint32_t i = 0; i < count; ++i) {
      const int32_t next = llama->MostLikely();
      STRATA_RETURN_IF_ERROR(llama->Append(std::span(&next, 1)));
    }
    return count / watch.Seconds();
  };
  STRATA_RETURN_IF_ERROR(generate().status());
  llama->Reset();
  const uint64_t before = BytesRead();
  const Stopwatch watch;
  STRATA_RETURN_IF_ERROR(llama->Append(tokens));
  const double prompt_speed = static_cast<double>(tokens.size()) / watch.Seconds();
  const uint64_t between = BytesRead();
  STRATA_ASSIGN_OR_RETURN(const double generation, generate());
  Print({prompt_speed, generation}, between - before, BytesRead() - between);
  return absl::OkStatus();
}

absl::Status Main() {
  STRATA_ASSIGN_OR_RETURN(const auto file, gguf::Model::Open(absl::GetFlag(FLAGS_model)));
  const std::vector<uint32_t> prompt =
      PromptTokens(absl::GetFlag(FLAGS_model), 4096, absl::GetFlag(FLAGS_prompt));
  if (prompt.size() < kShortPrompt) return absl::InvalidArgumentError("--prompt is below 32");
  std::cout << "| engine | prompt tok/s | MB read for it | generation tok/s | MB read a token |\n";
  return absl::GetFlag(FLAGS_engine) == "llama" ? RunLlama(prompt) : RunStrata(prompt);
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = strata::bench::Main();
  if (!status.ok()) strata::LogError(status.message());
  return status.ok() ? 0 : 1;
}
