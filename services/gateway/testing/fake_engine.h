// A scripted engine: a test says what a prompt is answered with, and sees what was asked and what
// was cancelled. Tokens come from a thread of its own, as from gRPC.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "services/gateway/engine/engine.h"

namespace strata::gateway::testing {

class FakeEngine : public Engine {
 public:
  // What one Generate call does.
  struct Script {
    std::vector<uint32_t> tokens;
    v1::Finish::Reason finish = v1::Finish::STOP_TOKEN;
    uint32_t cached_tokens = 0;
    uint32_t spliced_tokens = 0;
    std::optional<v1::PlanResponse> plan;  // what kvstore said
    // Sent this many at a time.
    size_t batch = 1;
    std::chrono::microseconds delay{0};  // before each batch
    // Called before each token on the engine's thread; may wait.
    std::function<void(size_t)> before_token;
    bool hangs = false;    // never finishes by itself
    absl::Status failure;  // instead of Finish
  };
  using Writer = std::function<Script(const v1::GenerateRequest&)>;

  explicit FakeEngine(Writer writer);
  ~FakeEngine() override;

  void set_state(EngineState state) { state_ = state; }
  // What Explain answers; it fails until this was called.
  void set_explanation(v1::PlanResponse explanation) { explanation_ = std::move(explanation); }
  void set_description(const v1::DescribeResponse& description);

  EngineState state() const override { return state_; }
  std::string reason() const override { return "the fake is not ready"; }
  std::shared_ptr<const v1::DescribeResponse> description() const override;
  EngineStatus status() const override;
  std::unique_ptr<EngineCall> Generate(v1::GenerateRequest request, std::string tenant,
                                       EngineCallbacks callbacks) override;
  absl::StatusOr<v1::PlanResponse> Explain(v1::PlanRequest request, std::string tenant) override;
  void Remember(std::string name, std::string value) override;
  absl::StatusOr<std::string> Recall(std::string name) override;

  // Waits for all calls; scripts that hang must have been cancelled.
  void Join();

  int running() const { return running_; }
  int cancelled() const { return cancelled_; }
  std::vector<v1::GenerateRequest> requests() const;
  std::vector<std::string> tenants() const;
  v1::PlanRequest last_explained() const;

 private:
  class Call;

  const Writer writer_;
  mutable std::mutex mutex_;
  std::shared_ptr<const v1::DescribeResponse> description_;
  std::vector<v1::GenerateRequest> requests_;
  std::vector<std::string> tenants_;
  std::optional<v1::PlanResponse> explanation_;  // set before the test begins
  v1::PlanRequest last_explained_;
  std::map<std::string, std::string> remembered_;
  std::vector<std::thread> threads_;
  std::atomic<EngineState> state_ = EngineState::kReady;
  std::atomic<int> running_ = 0;
  std::atomic<int> cancelled_ = 0;
};

}  // namespace strata::gateway::testing
