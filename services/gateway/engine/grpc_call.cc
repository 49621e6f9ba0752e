#include "services/gateway/engine/grpc_call.h"

#include "common/rpc/channel.h"

namespace strata::gateway {

GrpcCall::GrpcCall(v1::GenerateRequest request, EngineCallbacks callbacks,
                   std::function<void()> on_gone)
    : request_(std::move(request)),
      callbacks_(std::move(callbacks)),
      on_gone_(std::move(on_gone)) {}

void GrpcCall::Start(v1::Compute::Stub* compute, v1::KvStore::Stub* kvstore, v1::StateKey key,
                     std::chrono::milliseconds plan_timeout) {
  compute_ = compute;
  self_ = shared_from_this();
  // Also without a plan compute needs the key: it saves new state under it.
  *request_.mutable_restore()->mutable_key() = std::move(key);
  if (kvstore == nullptr) {
    StartGenerate();
  } else {
    Plan(kvstore, plan_timeout);
  }
}

void GrpcCall::Plan(v1::KvStore::Stub* kvstore, std::chrono::milliseconds timeout) {
  rpc::PrepareCall(plan_context_, request_.request_id(), timeout);
  plan_request_.set_request_id(request_.request_id());
  *plan_request_.mutable_key() = request_.restore().key();
  *plan_request_.mutable_tokens() = request_.prompt();
  plan_request_.set_splice(request_.splice());
  plan_request_.mutable_line_starts()->Swap(request_.mutable_line_starts());
  kvstore->async()->Plan(&plan_context_, &plan_request_, &plan_response_,
                         [this](const grpc::Status& status) {
                           // No plan, for whatever reason, only means that everything is read.
                           if (status.ok() && plan_response_.has_plan()) {
                             if (callbacks_.on_plan) callbacks_.on_plan(plan_response_);
                             v1::RestorePlan& plan = *plan_response_.mutable_plan();
                             *plan.mutable_key() = request_.restore().key();
                             *request_.mutable_restore() = std::move(plan);
                           }
                           StartGenerate();
                         });
}

void GrpcCall::StartGenerate() {
  {
    const std::lock_guard lock(mutex_);
    if (!cancelled_) {
      generating_ = true;
      rpc::PrepareCall(context_, request_.request_id(), std::chrono::milliseconds(0));
      compute_->async()->Generate(&context_, &request_, this);
      StartRead(&event_);
      StartCall();
      return;
    }
  }
  Finish(absl::CancelledError("cancelled"));
}

void GrpcCall::Cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (generating_) {
    context_.TryCancel();
  } else {
    plan_context_.TryCancel();
  }
}

void GrpcCall::OnReadDone(bool ok) {
  if (!ok) return;
  callbacks_.on_event(std::move(event_));
  event_.Clear();
  StartRead(&event_);
}

void GrpcCall::OnDone(const grpc::Status& status) { Finish(rpc::FromGrpc(status)); }

void GrpcCall::Finish(absl::Status status) {
  callbacks_.on_done(std::move(status));
  callbacks_ = {};  // what they refer to may go away as soon as on_gone was called
  const std::function<void()> on_gone = std::move(on_gone_);
  const std::shared_ptr<GrpcCall> last = std::move(self_);
  on_gone();
}

}  // namespace strata::gateway
