#include "tests/engine/local_engine.h"

#include <cstring>
#include <utility>

#include "common/base/status.h"
#include "common/gguf/expert_geometry.h"
#include "services/compute/cpu/cpu_backend.h"
#include "services/compute/experts/mapped_expert_source.h"
#include "services/compute/models/registry.h"

namespace strata::compute {

void CollectingSink::OnProgress(const v1::Progress&) {}

void CollectingSink::OnTokens(const v1::TokenBatch& tokens) {
  std::unique_lock lock(mutex_);
  tokens_.insert(tokens_.end(), tokens.tokens().begin(), tokens.tokens().end());
  changed_.notify_all();
  changed_.wait(lock, [&] { return tokens_.size() < hold_at_; });
}

void CollectingSink::LetGo() {
  const std::lock_guard lock(mutex_);
  hold_at_ = SIZE_MAX;
  changed_.notify_all();
}

void CollectingSink::OnFinish(const absl::Status& status, const v1::Finish& finish) {
  const std::lock_guard lock(mutex_);
  status_ = status;
  finish_ = finish;
  changed_.notify_all();
}

absl::Status CollectingSink::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return status_.has_value(); });
  return *status_;
}

void CollectingSink::WaitForTokens(size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return status_.has_value() || tokens_.size() >= count; });
}

std::vector<uint32_t> CollectingSink::tokens() {
  const std::lock_guard lock(mutex_);
  std::vector<uint32_t> ids;
  for (const v1::GeneratedToken& t : tokens_) ids.push_back(t.id());
  return ids;
}

v1::Finish CollectingSink::finish() {
  const std::lock_guard lock(mutex_);
  return finish_;
}

std::vector<v1::GeneratedToken> CollectingSink::details() {
  const std::lock_guard lock(mutex_);
  return tokens_;
}

absl::StatusOr<std::unique_ptr<Runtime>> OpenLocal(const std::string& model,
                                                   const v1::ComputeConfig& config,
                                                   StateStore* store, bool share_kv) {
  STRATA_ASSIGN_OR_RETURN(std::unique_ptr<gguf::Model> file, OpenModelFile(model));
  STRATA_ASSIGN_OR_RETURN(std::unique_ptr<Runtime> runtime,
                          Runtime::Open(std::move(file), config, nullptr));
  STRATA_RETURN_IF_ERROR(runtime->StartEngine(store, share_kv));
  return runtime;
}

v1::ComputeConfig SmallConfig() {
  v1::ComputeConfig config;
  config.set_kv_type("f16");
  config.set_isa("auto");
  config.set_threads(2);
  config.set_spin_us(100);
  config.set_max_sequences(4);
  config.set_chunk_tokens(512);
  config.set_splice_budget(0.10f);
  config.set_context_length(2048);
  return config;
}

v1::GenerateRequest Request(std::span<const uint32_t> prompt, uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_request_id("test");
  for (const uint32_t t : prompt) request.mutable_prompt()->add_ids(t);
  request.set_max_tokens(max_tokens);
  return request;
}

absl::StatusOr<std::vector<uint32_t>> GenerateGreedy(Engine& engine,
                                                     std::span<const uint32_t> prompt,
                                                     uint32_t max_tokens) {
  auto sink = std::make_shared<CollectingSink>();
  STRATA_RETURN_IF_ERROR(engine.Generate(Request(prompt, max_tokens), sink).status());
  STRATA_RETURN_IF_ERROR(sink->Wait());
  return sink->tokens();
}

namespace {

// What a score request produces, joined.
struct CollectScores final : ScoreSink {
  void OnScores(const v1::ScoreChunk& chunk) override {
    scores.logprobs.insert(scores.logprobs.end(), chunk.logprobs().begin(), chunk.logprobs().end());
    scores.argmax.insert(scores.argmax.end(), chunk.argmax().begin(), chunk.argmax().end());
    distribution += chunk.distribution();
  }
  void OnFinish(const absl::Status& s) override {
    const std::lock_guard lock(mutex);
    status = s;
    changed.notify_all();
  }
  absl::Status Wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return status.has_value(); });
    return *status;
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<absl::Status> status;
  Scores scores;
  std::string distribution;
};

}  // namespace

absl::StatusOr<Scores> ScoreTokens(Engine& engine, std::span<const uint32_t> tokens) {
  auto sink = std::make_shared<CollectScores>();
  v1::ScoreRequest request;
  for (const uint32_t t : tokens) request.mutable_tokens()->add_ids(t);
  STRATA_RETURN_IF_ERROR(engine.Score(std::move(request), sink).status());
  STRATA_RETURN_IF_ERROR(sink->Wait());
  return sink->scores;
}

absl::StatusOr<std::vector<float>> ScoreDistribution(Engine& engine,
                                                     std::span<const uint32_t> tokens, size_t first,
                                                     const v1::RestorePlan& plan,
                                                     double splice_budget) {
  auto sink = std::make_shared<CollectScores>();
  v1::ScoreRequest request;
  for (const uint32_t t : tokens) request.mutable_tokens()->add_ids(t);
  request.set_first_position(static_cast<uint32_t>(first));
  *request.mutable_restore() = plan;
  request.set_splice_budget(static_cast<float>(splice_budget));
  request.set_distribution(true);
  STRATA_RETURN_IF_ERROR(engine.Score(std::move(request), sink).status());
  STRATA_RETURN_IF_ERROR(sink->Wait());
  std::vector<float> values(sink->distribution.size() / sizeof(float));
  std::memcpy(values.data(), sink->distribution.data(), values.size() * sizeof(float));
  return values;
}

absl::StatusOr<std::vector<float>> AllLogits(const std::string& model,
                                             const v1::ComputeConfig& config,
                                             std::span<const uint32_t> tokens,
                                             std::optional<std::span<const int32_t>> wanted) {
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<gguf::Model> file, gguf::Model::Open(model));
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                          CreateCpuBackend({static_cast<int>(config.threads()),
                                            static_cast<int>(config.spin_us()), config.isa()}));
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<Model> loaded, LoadModel(*file, *backend));
  STRATA_ASSIGN_OR_RETURN(const gguf::ExpertGeometry geometry, gguf::ReadExpertGeometry(*file));
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<MappedExpertSource> experts,
                          MappedExpertSource::Create(*file, geometry));
  const int rows = static_cast<int>(tokens.size());
  KvShape shape = loaded->kv_shape();
  STRATA_ASSIGN_OR_RETURN(shape.type, KvTypeOf(config.kv_type(), shape.head_dim));
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<KvCache> kv,
                          KvCache::Create(*backend, shape, KvCache::PagesFor(rows)));
  std::vector<int32_t> pages;
  kv->Take(KvCache::PagesFor(rows), pages);
  std::vector<int32_t> ids, positions, slots, sequence(tokens.size(), 0);
  for (int i = 0; i < rows; ++i) {
    ids.push_back(static_cast<int32_t>(tokens[static_cast<size_t>(i)]));
    positions.push_back(i);
    slots.push_back(pages[static_cast<size_t>(i / KvCache::kPageTokens)] * KvCache::kPageTokens +
                    i % KvCache::kPageTokens);
  }
  const std::span<const int32_t> table(pages);
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> memory,
                          backend->Allocate(loaded->ScratchBytes(rows), "activations"));
  Scratch scratch(std::span(memory->data(), memory->size()));
  Step step{.backend = *backend,
            .experts = experts.get(),
            .kv = *kv,
            .scratch = scratch,
            .priority = ExpertPriority::kPrompt,
            .tokens = ids,
            .positions = positions,
            .slots = slots,
            .attention = {sequence, positions, std::span(&table, 1)},
            .wanted = wanted,
            .x = {},
            .cos_sin = {}};
  STRATA_RETURN_IF_ERROR(loaded->Forward(step));
  const std::span<const int32_t> results = wanted.value_or(positions);
  const int64_t vocab = loaded->info().vocab_size;
  std::vector<float> host(results.size() * static_cast<size_t>(vocab));
  if (results.empty()) return host;
  const auto count = static_cast<int64_t>(results.size());
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> logits,
                          backend->Allocate(Scratch::Bytes(count, vocab), "logits"));
  loaded->Logits(step, results,
                 Tensor{TensorType::kF32, count, vocab, static_cast<size_t>(vocab) * sizeof(float),
                        logits->data()});
  backend->CopyToHost(std::as_writable_bytes(std::span(host)), logits->data());
  return host;
}

}  // namespace strata::compute
