#include "services/gateway/engine/grpc_engine.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "common/base/log.h"
#include "common/rpc/channel.h"
#include "common/state/block_id.h"
#include "services/gateway/engine/grpc_call.h"
#include "strata/v1/compute.grpc.pb.h"
#include "strata/v1/expertstore.grpc.pb.h"
#include "strata/v1/kvstore.grpc.pb.h"

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRememberTimeout{10'000};
constexpr milliseconds kRecallTimeout{100};

// A daemon that is busy may answer late; only silence for this long counts.
constexpr milliseconds kStatusTimeout{2000};

bool IsUsed(const std::string& address) { return !address.empty() && address != "none"; }

class GrpcEngine : public Engine {
 public:
  explicit GrpcEngine(GrpcEngineOptions options) : options_(std::move(options)) {}

  ~GrpcEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (watcher_.joinable()) watcher_.join();
    // Cancelled calls still call back once.
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return calls_ == 0; });
  }

  absl::Status Connect() {
    STRATA_ASSIGN_OR_RETURN(auto compute, rpc::Connect(options_.compute, options_.tls));
    compute_ = v1::Compute::NewStub(compute);
    if (IsUsed(options_.kvstore)) {
      STRATA_ASSIGN_OR_RETURN(auto kvstore, rpc::Connect(options_.kvstore, options_.tls));
      kvstore_ = v1::KvStore::NewStub(kvstore);
    }
    if (IsUsed(options_.expertstore)) {
      STRATA_ASSIGN_OR_RETURN(auto expertstore, rpc::Connect(options_.expertstore, options_.tls));
      expertstore_ = v1::ExpertStore::NewStub(expertstore);
    }
    watcher_ = std::thread([this] { Watch(); });
    return absl::OkStatus();
  }

  EngineState state() const override {
    const std::lock_guard lock(mutex_);
    return state_;
  }
  std::string reason() const override {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  std::shared_ptr<const v1::DescribeResponse> description() const override {
    const std::lock_guard lock(mutex_);
    return description_;
  }
  EngineStatus status() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  std::unique_ptr<EngineCall> Generate(v1::GenerateRequest request, std::string tenant,
                                       EngineCallbacks callbacks) override {
    v1::StateKey key;
    bool plan = false;
    const int tokens = request.prompt().ids_size();
    v1::PromptRouting routing = request.prompt_routing();
    {
      const std::lock_guard lock(mutex_);
      if (description_ != nullptr) {
        *key.mutable_fingerprint() = description_->fingerprint();
        *key.mutable_layout() = description_->state_layout();
        if (routing == v1::PROMPT_ROUTING_UNSPECIFIED) routing = description_->prompt_routing();
      }
      plan = status_.has_kvstore;
      ++calls_;
    }
    // What compute will save is approximate then; see block_id.h. Asked for by name, so that
    // compute cannot decide otherwise meanwhile.
    request.set_prompt_routing(routing);
    const bool exact = routing == v1::PROMPT_ROUTING_UNSPECIFIED || routing == v1::FULL;
    key.set_tenant(exact ? std::move(tenant) : state::ApproximateTenant(tenant));
    auto call = std::make_shared<GrpcCall>(std::move(request), std::move(callbacks), [this] {
      const std::lock_guard lock(mutex_);
      --calls_;
      changed_.notify_all();
    });
    call->Start(compute_.get(), plan ? kvstore_.get() : nullptr, std::move(key),
                options_.plan_timeout + tokens * milliseconds(1));
    return std::make_unique<Handle>(std::move(call));
  }

  absl::StatusOr<v1::PlanResponse> Explain(v1::PlanRequest request, std::string tenant) override {
    {
      const std::lock_guard lock(mutex_);
      if (description_ == nullptr || !status_.has_kvstore) {
        return absl::UnavailableError("kvstore does not answer");
      }
      *request.mutable_key()->mutable_fingerprint() = description_->fingerprint();
      *request.mutable_key()->mutable_layout() = description_->state_layout();
    }
    request.mutable_key()->set_tenant(std::move(tenant));
    request.set_dry_run(true);
    grpc::ClientContext context;
    rpc::PrepareCall(context, request.request_id(), kStatusTimeout);
    v1::PlanResponse response;
    STRATA_RETURN_IF_ERROR(rpc::FromGrpc(kvstore_->Plan(&context, request, &response)));
    return response;
  }

  void Remember(std::string name, std::string value) override {
    struct Call {
      grpc::ClientContext context;
      v1::PutProfileRequest request;
      v1::PutProfileResponse response;
    };
    auto call = std::make_shared<Call>();
    call->request.set_name(std::move(name));
    call->request.set_value(std::move(value));
    {
      const std::lock_guard lock(mutex_);
      if (!status_.has_kvstore || description_ == nullptr) return;
      *call->request.mutable_fingerprint() = description_->fingerprint();
      ++calls_;
    }
    rpc::PrepareCall(call->context, "", kRememberTimeout);
    kvstore_->async()->PutProfile(&call->context, &call->request, &call->response,
                                  [this, call](const grpc::Status&) {
                                    const std::lock_guard lock(mutex_);
                                    --calls_;
                                    changed_.notify_all();
                                  });
  }

  absl::StatusOr<std::string> Recall(std::string name) override {
    v1::GetProfileRequest request;
    request.set_name(std::move(name));
    {
      const std::lock_guard lock(mutex_);
      if (!status_.has_kvstore || description_ == nullptr) {
        return absl::UnavailableError("kvstore is not there");
      }
      *request.mutable_fingerprint() = description_->fingerprint();
    }
    grpc::ClientContext context;
    rpc::PrepareCall(context, "", kRecallTimeout);
    v1::GetProfileResponse response;
    STRATA_RETURN_IF_ERROR(rpc::FromGrpc(kvstore_->GetProfile(&context, request, &response)));
    if (!response.found()) return absl::NotFoundError("kvstore does not know it");
    return std::move(*response.mutable_value());
  }

 private:
  class Handle : public EngineCall {
   public:
    explicit Handle(std::shared_ptr<GrpcCall> call) : call_(std::move(call)) {}
    ~Handle() override { call_->Cancel(); }

   private:
    const std::shared_ptr<GrpcCall> call_;
  };

  void Watch() {
    while (true) {
      if (state() == EngineState::kReady) {
        AskCompute();
      } else {
        Describe();
      }
      AskStores();
      std::unique_lock lock(mutex_);
      // While compute is missing, look more often: its return should be noticed at once.
      const milliseconds pause =
          state_ == EngineState::kReady ? options_.watch_interval : options_.watch_interval / 5;
      if (changed_.wait_for(lock, pause, [this] { return stopping_; })) return;
    }
  }

  bool AwaitsKvStore() const {
    const std::lock_guard lock(mutex_);
    return kvstore_ != nullptr && !past_first_ready_ && !status_.has_kvstore;
  }

  void Describe() {
    grpc::ClientContext context;
    rpc::PrepareCall(context, "", kStatusTimeout);
    auto description = std::make_shared<v1::DescribeResponse>();
    const grpc::Status status = compute_->Describe(&context, {}, description.get());
    if (status.ok() && AwaitsKvStore()) AskStores();
    const std::lock_guard lock(mutex_);
    if (!status.ok()) {
      // Clients read the reason; where the daemons are is none of their business.
      reason_ =
          description_ == nullptr ? "compute does not answer yet" : "compute is being restarted";
      if (!told_) LogWarning(reason_, ": ", status.error_message());
      told_ = true;
      return;
    }
    const std::string& expected = options_.expected_fingerprint;
    if (!expected.empty() && description->fingerprint().hash() != expected) {
      if (state_ != EngineState::kWrong) {
        LogError("compute runs '", description->fingerprint().name(), "' from ",
                 description->model_path(), ", which is not this gateway's model");
      }
      state_ = EngineState::kWrong;
      reason_ = "compute runs another model than the gateway; restart the gateway";
      return;
    }
    if (kvstore_ != nullptr && !past_first_ready_ && !status_.has_kvstore) {
      const auto now = std::chrono::steady_clock::now();
      if (!awaits_kvstore_since_) awaits_kvstore_since_ = now;
      if (now < *awaits_kvstore_since_ + options_.kvstore_patience) {
        reason_ = "kvstore does not answer yet";
        return;
      }
    }
    past_first_ready_ = true;
    told_ = false;
    LogInfo("compute is ready: ", description->fingerprint().name(), ", context ",
            description->context_length(), ", ", description->max_sequences(), " sequences");
    state_ = EngineState::kReady;
    reason_.clear();
    description_ = std::move(description);
  }

  void AskCompute() {
    grpc::ClientContext context;
    rpc::PrepareCall(context, "", kStatusTimeout);
    v1::ComputeStatusResponse response;
    const grpc::Status status = compute_->Status(&context, {}, &response);
    const std::lock_guard lock(mutex_);
    status_.has_compute = status.ok();
    if (status.ok()) {
      status_.compute = std::move(response);
    } else if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      LogWarning("compute is gone: ", status.error_message());
      state_ = EngineState::kLost;
      reason_ = "compute is being restarted";
    }
  }

  void AskStores() {
    v1::KvStoreStatusResponse kvstore;
    v1::ExpertStoreStatusResponse expertstore;
    const bool has_kvstore = kvstore_ != nullptr && [&] {
      grpc::ClientContext context;
      rpc::PrepareCall(context, "", options_.watch_interval);
      return kvstore_->Status(&context, {}, &kvstore).ok();
    }();
    const bool has_expertstore = expertstore_ != nullptr && [&] {
      grpc::ClientContext context;
      rpc::PrepareCall(context, "", options_.watch_interval);
      return expertstore_->Status(&context, {}, &expertstore).ok();
    }();
    const std::lock_guard lock(mutex_);
    status_.has_kvstore = has_kvstore;
    status_.has_expertstore = has_expertstore;
    if (has_kvstore) status_.kvstore = std::move(kvstore);
    if (has_expertstore) status_.expertstore = std::move(expertstore);
  }

  const GrpcEngineOptions options_;
  std::unique_ptr<v1::Compute::Stub> compute_;
  std::unique_ptr<v1::KvStore::Stub> kvstore_;
  std::unique_ptr<v1::ExpertStore::Stub> expertstore_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  EngineState state_ = EngineState::kStarting;
  std::string reason_ = "compute does not answer yet";
  std::shared_ptr<const v1::DescribeResponse> description_;
  EngineStatus status_;
  // Only the first kReady waits for kvstore.
  bool past_first_ready_ = false;
  std::optional<std::chrono::steady_clock::time_point> awaits_kvstore_since_;
  bool told_ = false;  // the log knows that compute is missing
  int calls_ = 0;
  bool stopping_ = false;
  std::thread watcher_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> ConnectGrpcEngine(GrpcEngineOptions options) {
  auto engine = std::make_unique<GrpcEngine>(std::move(options));
  STRATA_RETURN_IF_ERROR(engine->Connect());
  return engine;
}

}  // namespace strata::gateway
