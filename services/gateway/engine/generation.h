// One answer, however many engine calls it takes. If compute dies, the generation starts again as
// soon as compute is back: before the first token as it was, later with the tokens so far appended
// to the prompt and `resumed_tokens` set. Since noise depends on (seed, position) only, the answer
// goes on as if nothing had happened.
//
// Used on the server's thread; the engine's callbacks only fill an inbox and ring `wake`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/gateway/engine/engine.h"

namespace strata::gateway {

class Generation {
 public:
  using Clock = std::chrono::steady_clock;

  struct RetryPolicy {
    int max_attempts = 40;  // without a new token in between
    std::chrono::milliseconds first_delay{50};
    std::chrono::milliseconds max_delay{2000};
    // A compute that keeps dying on this very request must not be killed again and again.
    int max_deaths = 3;
  };

  // `wake` may be called from any thread, also after the Generation is gone.
  Generation(Engine* engine, v1::GenerateRequest request, std::string tenant, RetryPolicy policy,
             std::function<void()> wake);
  ~Generation();  // cancels
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  struct Update {
    std::optional<v1::PlanResponse> plan;  // what of the prompt was stored; once
    std::optional<v1::Progress> progress;  // the newest
    std::vector<v1::GeneratedToken> tokens;
    std::optional<v1::Finish> finish;  // set once, at the end
    absl::Status error;                // not OK: gave up
  };
  // What happened since the last call. Starts due retries.
  Update Poll(Clock::time_point now);
  // When Poll has to be called even if `wake` was not.
  Clock::time_point next_poll() const { return next_attempt_.value_or(Clock::time_point::max()); }

  uint32_t restarts() const { return restarts_; }

 private:
  struct Inbox;
  void Start();
  void Failed(const absl::Status& status, Clock::time_point now, Update* update);

  Engine* const engine_;
  const v1::GenerateRequest request_;
  const std::string tenant_;
  const RetryPolicy policy_;
  const std::function<void()> wake_;
  std::vector<uint32_t> generated_;
  std::shared_ptr<Inbox> inbox_;
  std::unique_ptr<EngineCall> call_;
  std::optional<Clock::time_point> next_attempt_;
  int attempts_ = 0;
  int deaths_ = 0;
  uint32_t restarts_ = 0;
  bool finished_ = false;
  bool spliced_ = false;      // the first plan held approximate state
  bool was_running_ = false;  // compute worked on the present call
};

}  // namespace strata::gateway
