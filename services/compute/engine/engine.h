// Runs a model for many requests at once.
//
// One thread, the step loop, owns model, back end, K/V cache and all sequences; the public
// functions may be called from any thread and only pass messages to it. A second thread fetches
// saved state, so that reading from the store overlaps with computing for others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "services/compute/engine/response_sink.h"
#include "services/compute/models/model.h"
#include "services/compute/state/kv_cache.h"
#include "services/compute/state/state_store.h"

#include "absl/status/statusor.h"

namespace strata::compute {

struct EngineOptions {
  int context_length = 0;  // tokens one sequence may hold
  int max_sequences = 8;
  int chunk_tokens = 512;
  double splice_budget = 0.10;  // share of moved tokens that is read again (SPLICE_SAFE)
  // Requests that save their state use the pages of others with the same beginning.
  bool share_kv = true;
  // Of prompts whose request names none; nullopt: full when memory has room for all experts, else
  // guarded.
  std::optional<PromptRouting> prompt_routing;
  float prompt_routing_bound = 0.15F;
  float prompt_routing_budget = 0.10F;
  // The next layer's experts are asked for while this one computes, if not all are in memory.
  bool prompt_look_ahead = true;
  bool decode_look_ahead = false;
};

struct EngineStatus {
  int running = 0;
  int waiting = 0;
  uint64_t prompt_tokens = 0;  // computed, without restored ones
  uint64_t generated_tokens = 0;
  int kv_pages_total = 0;
  int kv_pages_used = 0;   // by running requests; a page that several use counts once
  int kv_pages_idle = 0;   // used by none, but to be found by the next
  ExpertCounters experts;  // as of the last step
};

using RequestHandle = uint64_t;

class Engine {
 public:
  // Everything passed in must outlive the engine. `experts` is null for a dense model, `store` may
  // be null (nothing is saved). `fingerprint_hash` and the layout name this model's blocks.
  struct Parts {
    Backend* backend = nullptr;
    Model* model = nullptr;
    KvCache* kv = nullptr;
    ExpertSource* experts = nullptr;
    StateStore* store = nullptr;
    std::string fingerprint_hash;
    std::string layout_hash;
  };
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const Parts& parts,
                                                        const EngineOptions& options);
  // Running requests finish with Cancelled.
  ~Engine();

  // InvalidArgument for a token outside the vocabulary, an empty prompt, a bad sampling value, or a
  // prompt that leaves no room in the context (the message has both numbers); ResourceExhausted if
  // the K/V memory can never hold it; Unavailable when draining.
  absl::StatusOr<RequestHandle> Generate(v1::GenerateRequest request,
                                         std::shared_ptr<GenerateSink> sink);
  absl::StatusOr<RequestHandle> Score(v1::ScoreRequest request, std::shared_ptr<ScoreSink> sink);

  // Takes effect before the next step: at a prompt chunk's end or after a token. Unknown or
  // finished handles are ignored.
  void Cancel(RequestHandle handle);

  // Refuses new requests from now on.
  void StopAccepting();
  EngineStatus status() const;
  // How prompts are read whose request does not say it. Any thread.
  v1::PromptRouting default_prompt_routing() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::compute
