#include "services/gateway/engine/generation.h"

#include <algorithm>
#include <mutex>

#include "common/base/log.h"

namespace strata::gateway {
namespace {

// Failures of the way to compute rather than of the request.
bool IsTransient(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

bool IsSpliced(const v1::RestorePlan& plan) {
  return !plan.runs().empty() ||
         std::any_of(plan.blocks().begin(), plan.blocks().end(),
                     [](const v1::BlockRef& b) { return b.lineage() != v1::LINEAGE_EXACT; });
}

}  // namespace

struct Generation::Inbox {
  std::mutex mutex;
  std::optional<v1::PlanResponse> plan;
  std::vector<v1::GenerateEvent> events;
  std::optional<absl::Status> done;
};

Generation::Generation(Engine* engine, v1::GenerateRequest request, std::string tenant,
                       RetryPolicy policy, std::function<void()> wake)
    : engine_(engine),
      request_(std::move(request)),
      tenant_(std::move(tenant)),
      policy_(policy),
      wake_(std::move(wake)) {
  Start();
}

Generation::~Generation() = default;

void Generation::Start() {
  v1::GenerateRequest request = request_;
  request.mutable_prompt()->mutable_ids()->Add(generated_.begin(), generated_.end());
  request.set_resumed_tokens(static_cast<uint32_t>(generated_.size()));
  // The answer goes on as it began: an exact one finds nothing to move that was stored since, a
  // spliced one finds its own blocks.
  if (restarts_ > 0 && !spliced_) {
    request.set_splice(v1::SPLICE_OFF);
    request.clear_line_starts();
  }
  inbox_ = std::make_shared<Inbox>();
  was_running_ = false;
  EngineCallbacks callbacks;
  // What is found later, after a restart, was put there by this very request.
  if (restarts_ == 0) {
    callbacks.on_plan = [inbox = inbox_](const v1::PlanResponse& plan) {
      const std::lock_guard lock(inbox->mutex);
      inbox->plan = plan;
    };
  }
  callbacks.on_event = [inbox = inbox_, wake = wake_](v1::GenerateEvent event) {
    {
      const std::lock_guard lock(inbox->mutex);
      inbox->events.push_back(std::move(event));
    }
    wake();
  };
  callbacks.on_done = [inbox = inbox_, wake = wake_](absl::Status status) {
    {
      const std::lock_guard lock(inbox->mutex);
      inbox->done = std::move(status);
    }
    wake();
  };
  call_ = engine_->Generate(std::move(request), tenant_, std::move(callbacks));
}

Generation::Update Generation::Poll(Clock::time_point now) {
  Update update;
  if (finished_) return update;
  if (next_attempt_) {
    if (now < *next_attempt_) return update;
    next_attempt_.reset();
    Start();
  }
  std::vector<v1::GenerateEvent> events;
  std::optional<absl::Status> done;
  {
    const std::lock_guard lock(inbox_->mutex);
    update.plan.swap(inbox_->plan);
    events.swap(inbox_->events);
    done.swap(inbox_->done);
  }
  if (update.plan) spliced_ = IsSpliced(update.plan->plan());
  bool drained = false;
  for (v1::GenerateEvent& event : events) {
    if (event.has_progress()) {
      // Who waits in the queue has killed nobody.
      was_running_ |= event.progress().queue_position() == 0;
      update.progress = std::move(*event.mutable_progress());
    } else if (event.has_tokens()) {
      was_running_ = true;
      for (v1::GeneratedToken& token : *event.mutable_tokens()->mutable_tokens()) {
        generated_.push_back(token.id());
        update.tokens.push_back(std::move(token));
        attempts_ = 0;
        deaths_ = 0;
      }
    } else if (event.has_finish()) {
      drained = event.finish().reason() == v1::Finish::DRAINED;
      if (!drained) {
        update.finish = std::move(*event.mutable_finish());
        finished_ = true;
      }
    }
  }
  if (finished_) return update;
  if (drained) {
    Failed(absl::UnavailableError("compute is being stopped"), now, &update);
  } else if (done) {
    Failed(done->ok() ? absl::UnavailableError("compute ended the stream without finishing it")
                      : *done,
           now, &update);
  }
  return update;
}

void Generation::Failed(const absl::Status& status, Clock::time_point now, Update* update) {
  call_.reset();
  ++attempts_;
  if (was_running_) ++deaths_;
  if (!IsTransient(status) || attempts_ > policy_.max_attempts || deaths_ > policy_.max_deaths) {
    finished_ = true;
    update->error = status;
    return;
  }
  if (attempts_ == 1) {
    ++restarts_;
    LogWarning("request ", request_.request_id(), ": compute failed after ", generated_.size(),
               " tokens (", status.message(), "); going on when it is back");
  }
  const auto delay = policy_.first_delay * (1 << std::min(attempts_ - 1, 10));
  next_attempt_ = now + std::min<std::chrono::milliseconds>(delay, policy_.max_delay);
}

}  // namespace strata::gateway
