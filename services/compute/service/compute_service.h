// strata.v1.Compute on top of Engine. Includes gRPC headers.
#pragma once

#include <memory>

#include "services/compute/engine/runtime.h"
#include "services/compute/service/kv_client.h"
#include "strata/v1/compute.grpc.pb.h"

namespace strata::compute {

class ComputeService final : public v1::Compute::CallbackService {
 public:
  // Everything must outlive the service. `store` may be null.
  ComputeService(Runtime& runtime, const v1::ComputeConfig& config, std::string model_path,
                 const StateStore* store)
      : runtime_(runtime), config_(config), model_path_(std::move(model_path)), store_(store) {}

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest* request,
                                     v1::DescribeResponse* response) override;
  grpc::ServerWriteReactor<v1::GenerateEvent>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerWriteReactor<v1::ScoreChunk>* Score(grpc::CallbackServerContext* context,
                                                  const v1::ScoreRequest* request) override;
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const v1::ComputeStatusRequest* request,
                                   v1::ComputeStatusResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;

 private:
  Runtime& runtime_;
  v1::ComputeConfig config_;
  std::string model_path_;
  const StateStore* store_;
};

}  // namespace strata::compute
