// Compute and kvstore as gRPC services with scripted answers, for tests of the gateway's gRPC side.
// Includes gRPC headers.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "services/gateway/testing/fake_engine.h"
#include "strata/v1/compute.grpc.pb.h"
#include "strata/v1/kvstore.grpc.pb.h"

namespace strata::gateway::testing {

class FakeCompute final : public v1::Compute::Service {
 public:
  FakeCompute(v1::DescribeResponse description, FakeEngine::Writer writer)
      : description_(std::move(description)), writer_(std::move(writer)) {}

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                        v1::DescribeResponse* response) override;
  grpc::Status Status(grpc::ServerContext*, const v1::ComputeStatusRequest*,
                      v1::ComputeStatusResponse* response) override;
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateEvent>* writer) override;

  std::vector<v1::GenerateRequest> requests() const;
  int running() const { return running_; }
  int cancelled() const { return cancelled_; }

 private:
  const v1::DescribeResponse description_;
  const FakeEngine::Writer writer_;
  mutable std::mutex mutex_;
  std::vector<v1::GenerateRequest> requests_;
  std::atomic<int> running_ = 0;
  std::atomic<int> cancelled_ = 0;
};

class FakeKvStore final : public v1::KvStore::Service {
 public:
  std::chrono::milliseconds delay{0};
  grpc::Status failure;

  grpc::Status Plan(grpc::ServerContext* context, const v1::PlanRequest* request,
                    v1::PlanResponse* response) override;
  grpc::Status Status(grpc::ServerContext*, const v1::KvStoreStatusRequest*,
                      v1::KvStoreStatusResponse* response) override;
  grpc::Status PutProfile(grpc::ServerContext*, const v1::PutProfileRequest* request,
                          v1::PutProfileResponse*) override;
  grpc::Status GetProfile(grpc::ServerContext*, const v1::GetProfileRequest* request,
                          v1::GetProfileResponse* response) override;
  v1::PlanRequest last_plan() const {
    const std::lock_guard lock(mutex_);
    return last_plan_;
  }

 private:
  mutable std::mutex mutex_;
  v1::PlanRequest last_plan_;
  std::map<std::string, std::string> profiles_;
};

}  // namespace strata::gateway::testing
