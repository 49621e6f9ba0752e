// Everything one process needs to run a model: file, back end, experts, model, K/V memory, engine.
#pragma once

#include <memory>
#include <string>

#include "common/gguf/reader.h"
#include "services/compute/engine/engine.h"
#include "services/compute/experts/expert_source.h"
#include "services/compute/models/model.h"
#include "services/compute/ops/backend.h"
#include "services/compute/state/kv_cache.h"
#include "services/compute/state/state_store.h"
#include "strata/v1/config.pb.h"

#include "absl/status/statusor.h"

namespace strata::compute {

class Runtime {
 public:
  // `experts` = null: experts are used where the mapped file has them (one-process use).
  //
  // Memory: K/V pages take `kv_bytes`, or, if 0, what `max_sequences` contexts need, at most a
  // quarter of the free memory; the context is cut to what these pages hold, and the log says so.
  static absl::StatusOr<std::unique_ptr<Runtime>> Open(std::unique_ptr<gguf::Model> file,
                                                       const v1::ComputeConfig& config,
                                                       std::unique_ptr<ExpertSource> experts);

  // Starts the step loop. `store` may be null; it must live until StopEngine. Without `share_kv`
  // nothing is reused but what a request's plan names (tests).
  absl::Status StartEngine(StateStore* store, bool share_kv = true);
  // Running requests end as cancelled.
  void StopEngine() { engine_.reset(); }

  // Only between StartEngine and StopEngine.
  Engine& engine() { return *engine_; }
  Backend& backend() { return *backend_; }
  const Model& model() const { return *model_; }
  const gguf::Model& file() const { return *file_; }
  const ExpertSource* experts() const { return experts_.get(); }
  const v1::ModelFingerprint& fingerprint() const { return fingerprint_; }
  const v1::StateLayout& layout() const { return layout_; }
  int context_length() const { return options_.context_length; }

 private:
  Runtime() = default;
  absl::Status PlanMemory(const v1::ComputeConfig& config);
  // Prompt tokens of a step when the configuration names no number.
  int ChunkTokens() const;

  std::unique_ptr<gguf::Model> file_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ExpertSource> experts_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Engine> engine_;  // last: its thread uses all of the above
  v1::ModelFingerprint fingerprint_;
  v1::StateLayout layout_;
  EngineOptions options_;
};

// The model's file, or an error that lists what was tried.
absl::StatusOr<std::unique_ptr<gguf::Model>> OpenModelFile(const std::string& path);

// Identity of an opened file.
v1::ModelFingerprint FingerprintOf(const gguf::Model& file);

}  // namespace strata::compute
