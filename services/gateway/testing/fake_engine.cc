#include "services/gateway/testing/fake_engine.h"

#include <algorithm>

namespace strata::gateway::testing {

struct CancelFlag {
  std::mutex mutex;
  std::condition_variable changed;
  bool cancelled = false;

  // True if cancelled within the time.
  bool Wait(std::chrono::microseconds time) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, time, [this] { return cancelled; });
  }
};

class FakeEngine::Call : public EngineCall {
 public:
  explicit Call(std::shared_ptr<CancelFlag> flag) : flag_(std::move(flag)) {}
  ~Call() override {
    const std::lock_guard lock(flag_->mutex);
    flag_->cancelled = true;
    flag_->changed.notify_all();
  }

 private:
  std::shared_ptr<CancelFlag> flag_;
};

FakeEngine::FakeEngine(Writer writer) : writer_(std::move(writer)) {
  v1::DescribeResponse description;
  description.set_context_length(1000);
  description.set_context_trained(4096);
  description.set_vocab_size(1024);
  description.set_max_sequences(4);
  description.set_parameters(123456);
  description.set_model_bytes(654321);
  description.mutable_fingerprint()->set_architecture("fake");
  description.mutable_fingerprint()->set_name("Fake");
  set_description(description);
}

FakeEngine::~FakeEngine() { Join(); }

void FakeEngine::Join() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void FakeEngine::set_description(const v1::DescribeResponse& description) {
  const std::lock_guard lock(mutex_);
  description_ = std::make_shared<const v1::DescribeResponse>(description);
}

std::shared_ptr<const v1::DescribeResponse> FakeEngine::description() const {
  const std::lock_guard lock(mutex_);
  return description_;
}

EngineStatus FakeEngine::status() const {
  EngineStatus status;
  status.has_compute = true;
  status.compute.set_kv_pages_total(100);
  status.compute.set_kv_pages_used(25);
  status.compute.set_expert_hits(7);
  return status;
}

void FakeEngine::Remember(std::string name, std::string value) {
  const std::lock_guard lock(mutex_);
  remembered_[std::move(name)] = std::move(value);
}

absl::StatusOr<std::string> FakeEngine::Recall(std::string name) {
  const std::lock_guard lock(mutex_);
  const auto it = remembered_.find(name);
  if (it == remembered_.end()) return absl::NotFoundError(name);
  return it->second;
}

std::vector<v1::GenerateRequest> FakeEngine::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::vector<std::string> FakeEngine::tenants() const {
  const std::lock_guard lock(mutex_);
  return tenants_;
}

absl::StatusOr<v1::PlanResponse> FakeEngine::Explain(v1::PlanRequest request, std::string tenant) {
  const std::lock_guard lock(mutex_);
  request.mutable_key()->set_tenant(std::move(tenant));
  last_explained_ = std::move(request);
  if (!explanation_) return absl::UnavailableError("kvstore does not answer");
  return *explanation_;
}

v1::PlanRequest FakeEngine::last_explained() const {
  const std::lock_guard lock(mutex_);
  return last_explained_;
}

std::unique_ptr<EngineCall> FakeEngine::Generate(v1::GenerateRequest request, std::string tenant,
                                                 EngineCallbacks callbacks) {
  auto flag = std::make_shared<CancelFlag>();
  const std::lock_guard lock(mutex_);
  requests_.push_back(request);
  tenants_.push_back(std::move(tenant));
  ++running_;
  threads_.emplace_back([this, flag, request = std::move(request),
                         callbacks = std::move(callbacks)] {
    const Script script = writer_(request);
    const auto give_up = [&] {
      ++cancelled_;
      --running_;
      callbacks.on_done(absl::CancelledError("cancelled"));
    };
    if (script.plan && callbacks.on_plan) callbacks.on_plan(*script.plan);
    v1::GenerateEvent progress;
    progress.mutable_progress()->set_prompt_tokens(
        static_cast<uint32_t>(request.prompt().ids_size()));
    progress.mutable_progress()->set_cached_tokens(script.cached_tokens);
    progress.mutable_progress()->set_spliced_tokens(script.spliced_tokens);
    callbacks.on_event(progress);
    size_t sent = request.resumed_tokens();
    const size_t limit = request.max_tokens() == 0
                             ? script.tokens.size()
                             : std::min<size_t>(script.tokens.size(), request.max_tokens());
    while (sent < limit) {
      if (flag->Wait(script.delay)) return give_up();
      if (script.before_token) script.before_token(sent);
      v1::GenerateEvent event;
      for (size_t i = 0; i < script.batch && sent < limit; ++i, ++sent) {
        v1::GeneratedToken* token = event.mutable_tokens()->add_tokens();
        token->set_id(script.tokens[sent]);
        if (request.logprobs()) token->set_logprob(-0.5F);
        for (uint32_t k = 0; k < request.top_logprobs(); ++k) {
          v1::TokenLogprob* top = token->add_top();
          top->set_id(script.tokens[sent] + k);
          top->set_logprob(-0.5F - static_cast<float>(k));
        }
      }
      callbacks.on_event(event);
    }
    while (script.hangs) {
      if (flag->Wait(std::chrono::seconds(1))) return give_up();
    }
    --running_;
    if (!script.failure.ok()) return callbacks.on_done(script.failure);
    v1::GenerateEvent event;
    v1::Finish* finish = event.mutable_finish();
    finish->set_reason(limit < script.tokens.size() ? v1::Finish::MAX_TOKENS : script.finish);
    finish->mutable_usage()->set_cached_tokens(script.cached_tokens);
    finish->mutable_usage()->set_spliced_tokens(script.spliced_tokens);
    finish->mutable_usage()->set_prompt_tokens(static_cast<uint32_t>(request.prompt().ids_size()) -
                                               request.resumed_tokens());
    finish->mutable_usage()->set_completion_tokens(static_cast<uint32_t>(sent));
    finish->mutable_timings()->set_prompt_ms(2);
    finish->mutable_timings()->set_generation_ms(4);
    callbacks.on_event(event);
    callbacks.on_done(absl::OkStatus());
  });
  return std::make_unique<Call>(std::move(flag));
}

}  // namespace strata::gateway::testing
