// One generation over gRPC: asks kvstore for a plan, then streams from compute. Includes gRPC
// headers; for grpc_engine.cc only.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>

#include "services/gateway/engine/engine.h"
#include "strata/v1/compute.grpc.pb.h"
#include "strata/v1/kvstore.grpc.pb.h"

namespace strata::gateway {

// Shared by its owner (through an EngineCall that cancels) and by gRPC until both are done with it.
class GrpcCall : public grpc::ClientReadReactor<v1::GenerateEvent>,
                 public std::enable_shared_from_this<GrpcCall> {
 public:
  // `on_gone` is called when gRPC is done with the call, after the callbacks.
  GrpcCall(v1::GenerateRequest request, EngineCallbacks callbacks, std::function<void()> on_gone);

  // `kvstore` may be null. The stubs must live until `on_gone`.
  void Start(v1::Compute::Stub* compute, v1::KvStore::Stub* kvstore, v1::StateKey key,
             std::chrono::milliseconds plan_timeout);
  void Cancel();

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void Plan(v1::KvStore::Stub* kvstore, std::chrono::milliseconds timeout);
  void StartGenerate();
  void Finish(absl::Status status);

  v1::GenerateRequest request_;
  EngineCallbacks callbacks_;
  std::function<void()> on_gone_;
  v1::Compute::Stub* compute_ = nullptr;
  v1::PlanRequest plan_request_;
  v1::PlanResponse plan_response_;
  v1::GenerateEvent event_;
  grpc::ClientContext plan_context_;
  grpc::ClientContext context_;
  std::mutex mutex_;
  bool cancelled_ = false;
  bool generating_ = false;
  // Keeps this alive while gRPC may still call.
  std::shared_ptr<GrpcCall> self_;
};

}  // namespace strata::gateway
