// One engine on a model that does not fit into memory: run it under a memory limit, once for each
// engine, and compare (tiers-pairs does both).
//
//   tiers_bench --engine=strata|mapped|llama --model=FILE --tokens=FILE [--percent=25]
//               [--prompt=1200] [--generate=64] [--warm=32] [--routing=full|guarded|resident]
//
// strata: store and engine in this process, an arena of `percent` of the experts. mapped: the same
// engine with direct pointers into the mapped file, to see what the tiers cost when everything is
// in memory (tier-instructions counts it). llama: llama.cpp with the file mapped, weights not
// repacked, as its users run a model larger than memory. Each reads 32 tokens, generates --warm
// tokens uncounted, --generate counted, and then reads the prompt (0: does not). Text is sampled at
// temperature 1, since greedy text repeats itself and so its experts; strata writes its tokens to
// --tokens, llama is led along them: both use the same experts.
//
// Beside speed and bytes strata prints what says whether the routing is like a trained model's (hit
// rate; share of a token's experts that the next one uses too) and how busy the drive was kept:
// its rate while reads were under way, and the rate of nothing but random reads of the same size.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <random>
#include <set>
#include <thread>

#include "common/base/status.h"
#include "common/gguf/expert_geometry.h"
#include "common/trace/routing_trace.h"
#include "services/compute/experts/arena_expert_source.h"
#include "services/expertstore/plane/data_plane.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/speed.h"
#include "tests/engine/local_engine.h"
#include "tests/oracle/llama_model.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(std::string, engine, "strata", "strata, mapped or llama.");
ABSL_FLAG(std::string, model, "", "GGUF file that both engines know.");
ABSL_FLAG(uint32_t, percent, 25, "Of the experts that the arena holds.");
ABSL_FLAG(std::string, tokens, "/tmp/tiers_bench.tokens", "Tokens generated: strata writes them.");
ABSL_FLAG(uint32_t, prompt, 1200, "Tokens of the prompt; 0: none is read.");
ABSL_FLAG(uint32_t, generate, 64, "Tokens generated and counted.");
ABSL_FLAG(uint32_t, warm, 32, "Tokens generated before.");
ABSL_FLAG(std::string, routing, "full", "Prompt routing of strata.");
ABSL_FLAG(std::string, look_ahead, "prompt", "Of strata: off, prompt or always.");
ABSL_FLAG(std::string, policy, "auto", "Of strata's store: which expert goes.");
ABSL_FLAG(uint32_t, threads, 2, "Of strata.");
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

// The limit of the memory control group (version 1 or 2) that this process is in; 0: none.
uint64_t MemoryLimit() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t path = line.rfind(':') + 1;
    const bool unified = line.starts_with("0::");
    if (!unified && line.find(":memory:") == std::string::npos) continue;
    std::ifstream file(unified ? absl::StrCat("/sys/fs/cgroup", line.substr(path), "/memory.max")
                               : absl::StrCat("/sys/fs/cgroup/memory", line.substr(path),
                                              "/memory.limit_in_bytes"));
    uint64_t bytes = 0;
    // Version 1 says "none" as the largest multiple of a page.
    if (file >> bytes && bytes < (1ull << 62)) return bytes;
  }
  return 0;
}

struct Figures {
  double generation = 0;  // tokens/s
  uint64_t generation_bytes = 0;
  double prompt = 0;  // tokens/s
  uint64_t prompt_bytes = 0;
  std::string more;
};

void Print(const Figures& f) {
  constexpr double kMega = 1e6;
  std::cout << absl::StreamFormat(
      "| %s | %.0f | %.3f | %.1f | %.2f | %.0f | %s |\n", absl::GetFlag(FLAGS_engine),
      static_cast<double>(MemoryLimit()) / kMega, f.generation,
      static_cast<double>(f.generation_bytes) / kMega / std::max(1u, absl::GetFlag(FLAGS_generate)),
      f.prompt, static_cast<double>(f.prompt_bytes) / kMega, f.more);
}

// Of the experts of a generated token in one layer, the share that the next token uses too.
absl::StatusOr<double> Overlap(const std::string& path) {
  STRATA_ASSIGN_OR_RETURN(const trace::RoutingTrace trace, trace::ReadFile(path));
  std::vector<std::set<uint32_t>> last(trace.layers);
  double shared = 0;
  double all = 0;
  for (const trace::Batch& batch : trace.batches) {
    std::set<uint32_t>& before = last[batch.layer];
    std::set<uint32_t> now;
    if (!batch.prompt) {
      for (const trace::Use& use : batch.uses) now.insert(use.expert);
    }
    if (!now.empty() && !before.empty()) {
      all += static_cast<double>(now.size());
      for (const uint32_t e : now) shared += before.contains(e) ? 1 : 0;
    }
    before = std::move(now);
  }
  return all > 0 ? shared / all : 0;
}

// Bytes per second of the store's own way of reading, with slices at random places and the drive's
// queue always full.
absl::StatusOr<double> RawRate(const expertstore::DataPlaneOptions& options) {
  constexpr double kSeconds = 1.5;
  STRATA_ASSIGN_OR_RETURN(const auto files,
                          expertstore::ModelFiles::Open(options.geometry.files, true));
  const size_t slice = options.slice_bytes;
  std::vector<std::byte> memory(slice * (options.queue_depth + 1));
  void* start = memory.data();
  size_t space = memory.size();
  std::align(shm::kBlockAlign, slice * options.queue_depth, start, space);
  auto* const base = static_cast<std::byte*>(start);
  const std::array<std::span<std::byte>, 1> pieces = {std::span(base, slice * options.queue_depth)};
  STRATA_ASSIGN_OR_RETURN(const auto engine,
                          expertstore::DataPlane::SystemEngine(files, pieces, options.queue_depth));
  std::ifstream file(absl::GetFlag(FLAGS_model), std::ios::ate | std::ios::binary);
  const uint64_t blocks = static_cast<uint64_t>(file.tellg()) / slice;
  std::mt19937_64 random(getpid());
  const auto queue = [&](uint64_t tag) {
    engine->Queue({tag, 0, true, random() % blocks * slice, static_cast<uint32_t>(slice),
                   base + tag * slice});
  };
  for (uint64_t tag = 0; tag < options.queue_depth; ++tag) queue(tag);
  engine->Flush();
  uint64_t bytes = 0;
  const Stopwatch watch;
  while (watch.Seconds() < kSeconds) {
    std::array<expertstore::ReadResult, 64> results;
    const size_t count = engine->Reap(results);
    for (size_t i = 0; i < count; ++i) {
      if (results[i].result < 0) return absl::InternalError("a raw read failed");
      bytes += static_cast<uint64_t>(results[i].result);
      queue(results[i].tag);
    }
    if (count > 0) {
      engine->Flush();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  const double rate = static_cast<double>(bytes) / watch.Seconds();
  for (uint64_t left = options.queue_depth; left > 0;) {  // they write into our memory
    std::array<expertstore::ReadResult, 64> results;
    left -= engine->Reap(results);
  }
  return rate;
}

v1::ComputeConfig Config() {
  v1::ComputeConfig config = compute::SmallConfig();
  config.set_threads(absl::GetFlag(FLAGS_threads));
  config.set_spin_us(2000);
  config.set_max_sequences(1);
  config.set_prompt_routing(absl::GetFlag(FLAGS_routing));
  config.set_chunk_tokens(absl::GetFlag(FLAGS_chunk));
  config.set_look_ahead(absl::GetFlag(FLAGS_look_ahead));
  return config;
}

double Rate(const expertstore::DataPlaneStatus& a, const expertstore::DataPlaneStatus& b) {
  return static_cast<double>(b.bytes_read - a.bytes_read) * 1e3 /
         static_cast<double>(std::max<uint64_t>(1, b.reading_ns - a.reading_ns));
}

double BusyPercent(const expertstore::DataPlaneStatus& a, const expertstore::DataPlaneStatus& b,
                   double seconds) {
  return 100e-9 * static_cast<double>(b.reading_ns - a.reading_ns) / seconds;
}

// Generates, then reads the prompt. `plane`: null without a store; `trace`: empty without one.
absl::Status Measure(compute::Runtime& runtime, const std::vector<uint32_t>& prompt,
                     expertstore::DataPlane* plane, const std::string& trace, Figures* figures) {
  const auto status = [plane] {
    return plane != nullptr ? plane->Status() : expertstore::DataPlaneStatus();
  };
  const uint32_t count = absl::GetFlag(FLAGS_generate);
  auto sink = std::make_shared<compute::CollectingSink>();
  v1::GenerateRequest request = compute::Request(std::span(prompt).first(kShortPrompt),
                                                 absl::GetFlag(FLAGS_warm) + count + 1);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(1);
  STRATA_RETURN_IF_ERROR(runtime.engine().Generate(request, sink).status());
  sink->WaitForTokens(absl::GetFlag(FLAGS_warm) + 1);
  const Stopwatch watch;
  const auto before = status();
  const compute::ExpertCounters counters = runtime.engine().status().experts;
  STRATA_RETURN_IF_ERROR(sink->Wait());
  const double seconds = watch.Seconds();
  const auto between = status();
  const compute::ExpertCounters after = runtime.engine().status().experts;
  std::ofstream tokens(absl::GetFlag(FLAGS_tokens));
  for (const uint32_t token : sink->tokens()) tokens << token << '\n';
  tokens.close();
  figures->generation = count / seconds;
  figures->generation_bytes = between.bytes_read - before.bytes_read;
  const auto hits = static_cast<double>(after.hits - counters.hits);
  const auto misses = static_cast<double>(after.misses - counters.misses);
  figures->more = absl::StrFormat(
      "hit rate %.3f, waited %.0f %%, drive busy %.0f %%, %.0f MB/s", hits / (hits + misses),
      100e-9 * static_cast<double>(after.wait_ns - counters.wait_ns) / seconds,
      BusyPercent(before, between, seconds), Rate(before, between));
  if (!trace.empty()) {
    STRATA_ASSIGN_OR_RETURN(const double overlap, Overlap(trace));
    figures->more += absl::StrFormat(", next-token overlap %.3f", overlap);
  }
  if (absl::GetFlag(FLAGS_prompt) == 0) return absl::OkStatus();
  auto reader = std::make_shared<compute::CollectingSink>();
  STRATA_RETURN_IF_ERROR(runtime.engine().Generate(compute::Request(prompt, 1), reader).status());
  STRATA_RETURN_IF_ERROR(reader->Wait());
  const double read_seconds = reader->finish().timings().prompt_ms() / 1e3;
  const auto end = status();
  figures->prompt = static_cast<double>(prompt.size()) / read_seconds;
  figures->prompt_bytes = end.bytes_read - between.bytes_read;
  figures->more += absl::StrFormat("; prompt: drive busy %.0f %%, %.0f MB/s",
                                   BusyPercent(between, end, read_seconds), Rate(between, end));
  return absl::OkStatus();
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
  const uint32_t percent = absl::GetFlag(FLAGS_percent);
  options.arena_bytes = all.all_bytes * percent / 100;
  options.policy = absl::GetFlag(FLAGS_policy);
  options.attach_path = absl::StrCat("/tmp/tiers_bench.", getpid(), ".sock");
  STRATA_ASSIGN_OR_RETURN(const auto plane, expertstore::DataPlane::Create(options));
  std::thread thread([&plane] { plane->Run(); });
  const std::string trace =
      percent < 100 ? absl::StrCat("/tmp/tiers_bench.", getpid(), ".trace") : "";
  const auto run = [&]() -> absl::Status {
    auto source = std::make_unique<compute::ArenaExpertSource>(
        compute::ArenaExpertSource::Options{options.attach_path, options.fingerprint});
    STRATA_RETURN_IF_ERROR(source->WaitUntilReady(20000));
    v1::ComputeConfig config = Config();
    config.set_trace_file(trace);
    STRATA_ASSIGN_OR_RETURN(const auto runtime,
                            compute::Runtime::Open(std::move(file), config, std::move(source)));
    STRATA_RETURN_IF_ERROR(runtime->StartEngine(nullptr));
    while (plane->Status().counts.background_left > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    Figures figures;
    STRATA_RETURN_IF_ERROR(Measure(*runtime, prompt, plane.get(), trace, &figures));
    STRATA_ASSIGN_OR_RETURN(const double raw, RawRate(options));
    figures.more += absl::StrFormat("; raw %.0f MB/s", raw / 1e6);
    Print(figures);
    return absl::OkStatus();
  };
  absl::Status status = run();
  plane->Stop();
  thread.join();
  if (!trace.empty()) unlink(trace.c_str());
  return status;
}

absl::Status RunMapped(const std::vector<uint32_t>& prompt) {
  STRATA_ASSIGN_OR_RETURN(const auto runtime,
                          compute::OpenLocal(absl::GetFlag(FLAGS_model), Config()));
  Figures figures;
  STRATA_RETURN_IF_ERROR(Measure(*runtime, prompt, nullptr, "", &figures));
  Print(figures);
  return absl::OkStatus();
}

absl::Status RunLlama(const std::vector<uint32_t>& prompt) {
  if (oracle::LlamaLibrary::Get() == nullptr) {
    return absl::NotFoundError(oracle::LlamaLibrary::WhyMissing());
  }
  const uint32_t warm = absl::GetFlag(FLAGS_warm);
  const uint32_t count = absl::GetFlag(FLAGS_generate);
  std::vector<int32_t> answer;
  std::ifstream file(absl::GetFlag(FLAGS_tokens));
  for (int32_t token; file >> token;) answer.push_back(token);
  if (answer.size() < warm + count) {
    return absl::FailedPreconditionError(
        absl::StrCat("--tokens: '", absl::GetFlag(FLAGS_tokens), "' has ", answer.size(),
                     " tokens; run --engine=strata with the same numbers first"));
  }
  oracle::LlamaModelOptions options;
  options.context = static_cast<uint32_t>(prompt.size()) + warm + count + kShortPrompt;
  options.cache = TensorType::kF16;
  options.flash_attention = true;
  STRATA_ASSIGN_OR_RETURN(
      const auto llama,
      oracle::LlamaModel::Load(*oracle::LlamaLibrary::Get(), absl::GetFlag(FLAGS_model), options));
  const std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  Figures figures;
  if (count > 0) {
    STRATA_RETURN_IF_ERROR(llama->Append(std::span(tokens).first(kShortPrompt)));
    const auto follow = [&](uint32_t from, uint32_t to) -> absl::Status {
      for (uint32_t i = from; i < to; ++i) {
        STRATA_RETURN_IF_ERROR(llama->Append(std::span(answer).subspan(i, 1)));
      }
      return absl::OkStatus();
    };
    STRATA_RETURN_IF_ERROR(follow(0, warm));
    const uint64_t before = BytesRead();
    const Stopwatch watch;
    STRATA_RETURN_IF_ERROR(follow(warm, warm + count));
    figures.generation = count / watch.Seconds();
    figures.generation_bytes = BytesRead() - before;
  }
  const uint64_t between = BytesRead();
  if (absl::GetFlag(FLAGS_prompt) > 0) {
    llama->Reset();
    const Stopwatch watch;
    STRATA_RETURN_IF_ERROR(llama->Append(tokens));
    figures.prompt = static_cast<double>(tokens.size()) / watch.Seconds();
    figures.prompt_bytes = BytesRead() - between;
  }
  Print(figures);
  return absl::OkStatus();
}

absl::Status Main() {
  STRATA_ASSIGN_OR_RETURN(const auto file, gguf::Model::Open(absl::GetFlag(FLAGS_model)));
  const std::vector<uint32_t> prompt =
      PromptTokens(absl::GetFlag(FLAGS_model), 4096,
                   std::max<size_t>(absl::GetFlag(FLAGS_prompt), kShortPrompt));
  std::cout << "| engine | limit MB | generation tok/s | MB read a token | prompt tok/s | MB read "
               "for it | |\n";
  const std::string engine = absl::GetFlag(FLAGS_engine);
  if (engine == "llama") return RunLlama(prompt);
  if (engine == "mapped") return RunMapped(prompt);
  if (engine == "strata") return RunStrata(prompt);
  return absl::InvalidArgumentError(
      absl::StrCat("--engine=", engine, " is not one of: strata, mapped, llama"));
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) { return strata::bench::RunMain(argc, argv, strata::bench::Main); }
