#include "services/gateway/testing/fake_compute.h"

#include <thread>

#include "common/rpc/channel.h"

namespace strata::gateway::testing {

grpc::Status FakeCompute::Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                                   v1::DescribeResponse* response) {
  *response = description_;
  return grpc::Status::OK;
}

grpc::Status FakeCompute::Status(grpc::ServerContext*, const v1::ComputeStatusRequest*,
                                 v1::ComputeStatusResponse* response) {
  response->set_running(static_cast<uint32_t>(running_.load()));
  return grpc::Status::OK;
}

std::vector<v1::GenerateRequest> FakeCompute::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

grpc::Status FakeCompute::Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                                   grpc::ServerWriter<v1::GenerateEvent>* writer) {
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(*request);
  }
  ++running_;
  const FakeEngine::Script script = writer_(*request);
  const auto give_up = [&] {
    ++cancelled_;
    --running_;
    return grpc::Status::CANCELLED;
  };
  size_t sent = request->resumed_tokens();
  const size_t limit = request->max_tokens() == 0
                           ? script.tokens.size()
                           : std::min<size_t>(script.tokens.size(), request->max_tokens());
  for (; sent < limit; ++sent) {
    std::this_thread::sleep_for(script.delay);
    v1::GenerateEvent event;
    v1::GeneratedToken* token = event.mutable_tokens()->add_tokens();
    token->set_id(script.tokens[sent]);
    if (request->logprobs()) token->set_logprob(-0.5F);
    if (context->IsCancelled() || !writer->Write(event)) return give_up();
  }
  while (script.hangs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (context->IsCancelled()) return give_up();
  }
  --running_;
  if (!script.failure.ok()) return rpc::ToGrpc(script.failure);
  v1::GenerateEvent event;
  v1::Finish* finish = event.mutable_finish();
  finish->set_reason(limit < script.tokens.size() ? v1::Finish::MAX_TOKENS : script.finish);
  finish->mutable_usage()->set_cached_tokens(request->restore().reused_tokens());
  finish->mutable_usage()->set_completion_tokens(static_cast<uint32_t>(sent));
  writer->Write(event);
  return grpc::Status::OK;
}

grpc::Status FakeKvStore::Plan(grpc::ServerContext* context, const v1::PlanRequest* request,
                               v1::PlanResponse* response) {
  {
    const std::lock_guard lock(mutex_);
    last_plan_ = *request;
  }
  for (auto waited = delay; waited.count() > 0 && !context->IsCancelled();
       waited -= std::chrono::milliseconds(5)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (!failure.ok()) return failure;
  response->mutable_plan()->set_reused_tokens(static_cast<uint32_t>(request->tokens().ids_size()) /
                                              2);
  return grpc::Status::OK;
}

grpc::Status FakeKvStore::Status(grpc::ServerContext*, const v1::KvStoreStatusRequest*,
                                 v1::KvStoreStatusResponse* response) {
  response->set_blocks(11);
  return grpc::Status::OK;
}

grpc::Status FakeKvStore::PutProfile(grpc::ServerContext*, const v1::PutProfileRequest* request,
                                     v1::PutProfileResponse*) {
  const std::lock_guard lock(mutex_);
  profiles_[request->fingerprint().hash() + request->name()] = request->value();
  return grpc::Status::OK;
}

grpc::Status FakeKvStore::GetProfile(grpc::ServerContext*, const v1::GetProfileRequest* request,
                                     v1::GetProfileResponse* response) {
  const std::lock_guard lock(mutex_);
  const auto it = profiles_.find(request->fingerprint().hash() + request->name());
  response->set_found(it != profiles_.end());
  if (response->found()) response->set_value(it->second);
  return grpc::Status::OK;
}

}  // namespace strata::gateway::testing
