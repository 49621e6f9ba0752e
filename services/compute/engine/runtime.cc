#include "services/compute/engine/runtime.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/log.h"
#include "common/base/memory_info.h"
#include "common/base/status.h"
#include "services/compute/cpu/cpu_backend.h"
#include "services/compute/engine/scheduler.h"
#include "services/compute/experts/mapped_expert_source.h"
#include "services/compute/experts/tracing_expert_source.h"
#include "services/compute/models/registry.h"

namespace strata::compute {
namespace {

// Share of the free memory that K/V takes when the configuration does not say.
constexpr double kKvShare = 0.25;
// Of free memory, for the activations of a chunk when not all experts fit.
constexpr uint64_t kActivationShare = 16;
constexpr int kLongestChunk = 8192;

}  // namespace

absl::StatusOr<std::unique_ptr<gguf::Model>> OpenModelFile(const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        "no model is configured: set `model` in the configuration or pass --model FILE.gguf");
  }
  return gguf::Model::Open(path);
}

v1::ModelFingerprint FingerprintOf(const gguf::Model& file) {
  v1::ModelFingerprint fingerprint;
  const auto hash = file.Fingerprint();
  fingerprint.set_hash(hash.data(), hash.size());
  const gguf::Metadata& metadata = file.metadata();
  if (const auto name = metadata.GetString("general.architecture"); name.ok()) {
    fingerprint.set_architecture(std::string(*name));
  }
  if (const auto name = metadata.GetString("general.name"); name.ok()) {
    fingerprint.set_name(std::string(*name));
  }
  return fingerprint;
}

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Open(std::unique_ptr<gguf::Model> file,
                                                       const v1::ComputeConfig& config,
                                                       std::unique_ptr<ExpertSource> experts) {
  auto runtime = std::unique_ptr<Runtime>(new Runtime());
  runtime->file_ = std::move(file);
  CpuOptions cpu;
  cpu.threads = static_cast<int>(config.threads());
  cpu.spin_us = static_cast<int>(config.spin_us());
  cpu.isa = config.isa();
  STRATA_ASSIGN_OR_RETURN(runtime->backend_, CreateCpuBackend(cpu));
  STRATA_ASSIGN_OR_RETURN(runtime->model_, LoadModel(*runtime->file_, *runtime->backend_));
  const ModelInfo& info = runtime->model_->info();
  runtime->experts_ = std::move(experts);
  if (runtime->experts_ == nullptr && info.experts > 0) {
    STRATA_ASSIGN_OR_RETURN(const gguf::ExpertGeometry geometry,
                            gguf::ReadExpertGeometry(*runtime->file_));
    STRATA_ASSIGN_OR_RETURN(runtime->experts_,
                            MappedExpertSource::Create(*runtime->file_, geometry));
  }
  if (!config.trace_file().empty() && runtime->experts_ != nullptr) {
    STRATA_ASSIGN_OR_RETURN(
        runtime->experts_,
        TracingExpertSource::Create(
            std::move(runtime->experts_), config.trace_file(), static_cast<uint32_t>(info.layers),
            static_cast<uint32_t>(info.experts), static_cast<uint32_t>(info.experts_used)));
    LogInfo("writing what the router chooses to '", config.trace_file(), "'");
  }
  runtime->options_.max_sequences = static_cast<int>(config.max_sequences());
  runtime->options_.splice_budget = config.splice_budget();
  if (config.prompt_routing() == "full") {
    runtime->options_.prompt_routing = PromptRouting::kFull;
  } else if (config.prompt_routing() == "guarded") {
    runtime->options_.prompt_routing = PromptRouting::kGuarded;
  } else if (config.prompt_routing() == "resident") {
    runtime->options_.prompt_routing = PromptRouting::kResident;
  }
  if (config.prompt_routing_bound() > 0) {
    runtime->options_.prompt_routing_bound = config.prompt_routing_bound();
  }
  if (config.prompt_routing_budget() > 0) {
    runtime->options_.prompt_routing_budget = config.prompt_routing_budget();
  }
  runtime->options_.prompt_look_ahead = config.look_ahead() != "off";
  runtime->options_.decode_look_ahead = config.look_ahead() == "always";
  STRATA_RETURN_IF_ERROR(runtime->PlanMemory(config));
  runtime->options_.chunk_tokens =
      config.chunk_tokens() > 0 ? static_cast<int>(config.chunk_tokens()) : runtime->ChunkTokens();
  runtime->fingerprint_ = FingerprintOf(*runtime->file_);
  runtime->layout_ = DescribeLayout(runtime->kv_->shape(), KvCache::kPageTokens);
  LogInfo("model ", runtime->fingerprint_.name(), " (", info.architecture, "), ", info.layers,
          " layers, ", info.experts, " experts a layer; ", A(runtime->backend_->description()));
  return runtime;
}

int Runtime::ChunkTokens() const {
  if (experts_ == nullptr || experts_->HoldsAll()) return Scheduler::kShortChunk;
  // Every chunk of a few hundred tokens uses nearly all experts: the longer, the fewer passes over
  // the drive.
  const uint64_t limit = AvailableMemory() / kActivationShare;
  int tokens = Scheduler::kShortChunk;
  while (tokens < kLongestChunk && tokens < options_.context_length &&
         model_->ScratchBytes(2 * tokens) <= limit) {
    tokens *= 2;
  }
  LogInfo("not all experts fit into memory: prompts are read in chunks of ", tokens, " tokens, ",
          model_->ScratchBytes(tokens) / 1000000, " MB of activations");
  return tokens;
}

absl::Status Runtime::StartEngine(StateStore* store, bool share_kv) {
  options_.share_kv = share_kv;
  STRATA_ASSIGN_OR_RETURN(
      engine_, Engine::Create({backend_.get(), model_.get(), kv_.get(), experts_.get(), store,
                               fingerprint_.hash(), layout_.hash()},
                              options_));
  return absl::OkStatus();
}

absl::Status Runtime::PlanMemory(const v1::ComputeConfig& config) {
  KvShape shape = model_->kv_shape();
  STRATA_ASSIGN_OR_RETURN(shape.type, KvTypeOf(config.kv_type(), shape.head_dim));
  const int trained = model_->info().context_trained;
  const int wanted = config.context_length() == 0
                         ? trained
                         : static_cast<int>(std::min<uint32_t>(config.context_length(), INT32_MAX));
  const uint64_t page_bytes = shape.TokenBytes() * KvCache::kPageTokens;
  const uint64_t full = static_cast<uint64_t>(KvCache::PagesFor(wanted)) *
                        std::max(1u, config.max_sequences()) * page_bytes;
  uint64_t bytes = config.kv_bytes();
  if (bytes == 0) {
    const auto share = static_cast<uint64_t>(kKvShare * static_cast<double>(AvailableMemory()));
    bytes = std::min(full, share);
  }
  // Never more than all sequences at full length can use.
  const uint64_t pages = std::min<uint64_t>(std::min(bytes, full) / page_bytes, INT32_MAX / 128);
  if (pages == 0) {
    return absl::ResourceExhaustedError(absl::StrCat("compute.kv_bytes = ", bytes,
                                                     " does not hold one page of ", page_bytes,
                                                     " bytes (", KvCache::kPageTokens, " tokens)"));
  }
  STRATA_ASSIGN_OR_RETURN(kv_, KvCache::Create(*backend_, shape, static_cast<int>(pages)));
  const uint64_t tokens = pages * KvCache::kPageTokens;
  options_.context_length =
      static_cast<int>(std::min<uint64_t>(tokens, static_cast<uint64_t>(wanted)));
  LogInfo("K/V: ", pages, " pages of ", KvCache::kPageTokens, " tokens, ",
          pages * page_bytes / 1000000, " MB; context ", options_.context_length, " tokens");
  if (options_.context_length < wanted) {
    LogWarning("the context is cut from ", wanted, " to ", options_.context_length,
               " tokens: set compute.kv_bytes to ", KvCache::PagesFor(wanted) * page_bytes,
               " or more to change that");
  }
  return absl::OkStatus();
}

}  // namespace strata::compute
