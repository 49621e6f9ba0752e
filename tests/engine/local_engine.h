// An engine on a model file in this process, with calls that wait for the result.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "services/compute/engine/runtime.h"

#include "absl/status/statusor.h"

namespace strata::compute {

// Collects what one request produces; Wait() returns after OnFinish.
class CollectingSink final : public GenerateSink {
 public:
  CollectingSink() = default;
  // Holds the engine at the `hold_at`-th token until LetGo: what is done between happens in the
  // middle of the answer, however fast the engine and slow the caller.
  explicit CollectingSink(size_t hold_at) : hold_at_(hold_at) {}
  void LetGo();

  void OnProgress(const v1::Progress& progress) override;
  void OnTokens(const v1::TokenBatch& tokens) override;
  void OnFinish(const absl::Status& status, const v1::Finish& finish) override;

  absl::Status Wait();
  // Waits until `count` tokens came or the request ended.
  void WaitForTokens(size_t count);

  std::vector<uint32_t> tokens();
  v1::Finish finish();
  std::vector<v1::GeneratedToken> details();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t hold_at_ = SIZE_MAX;
  std::vector<v1::GeneratedToken> tokens_;
  std::optional<absl::Status> status_;
  v1::Finish finish_;
};

// A runtime on `model` with experts from the mapped file. Without `share_kv` nothing is reused but
// what a request's plan names.
absl::StatusOr<std::unique_ptr<Runtime>> OpenLocal(const std::string& model,
                                                   const v1::ComputeConfig& config,
                                                   StateStore* store = nullptr,
                                                   bool share_kv = false);

// Defaults that fit small test models: f16 K/V, 2 threads, chunk of 512.
v1::ComputeConfig SmallConfig();

v1::GenerateRequest Request(std::span<const uint32_t> prompt, uint32_t max_tokens);

// Greedy answer to a prompt.
absl::StatusOr<std::vector<uint32_t>> GenerateGreedy(Engine& engine,
                                                     std::span<const uint32_t> prompt,
                                                     uint32_t max_tokens);

struct Scores {
  std::vector<float> logprobs;  // of token i + 1 given 0..i
  std::vector<uint32_t> argmax;
};
absl::StatusOr<Scores> ScoreTokens(Engine& engine, std::span<const uint32_t> tokens);

// Log-probabilities of the whole vocabulary [positions][vocabulary] for positions first to
// size - 2; what the plan restores lies before `first`.
absl::StatusOr<std::vector<float>> ScoreDistribution(Engine& engine,
                                                     std::span<const uint32_t> tokens, size_t first,
                                                     const v1::RestorePlan& plan,
                                                     double splice_budget);

// Logits of all positions, or only of those wanted (Step::wanted), straight from the model without
// an engine.
absl::StatusOr<std::vector<float>> AllLogits(const std::string& model,
                                             const v1::ComputeConfig& config,
                                             std::span<const uint32_t> tokens,
                                             std::optional<std::span<const int32_t>> wanted = {});

}  // namespace strata::compute
