#include "services/compute/service/compute_service.h"

#include <utility>

#include "common/base/log.h"
#include "common/rpc/channel.h"
#include "services/compute/service/event_stream.h"

namespace strata::compute {
namespace {

// Cancels a request whose handle is not known yet when the client may already be gone.
class CancelSwitch {
 public:
  explicit CancelSwitch(Engine& engine) : engine_(engine) {}

  void Arm(RequestHandle handle) {
    const std::lock_guard lock(mutex_);
    handle_ = handle;
    if (pulled_) engine_.Cancel(handle);
  }
  void Pull() {
    const std::lock_guard lock(mutex_);
    pulled_ = true;
    if (handle_) engine_.Cancel(*handle_);
  }

 private:
  Engine& engine_;
  std::mutex mutex_;
  std::optional<RequestHandle> handle_;
  bool pulled_ = false;
};

class GenerateStream final : public GenerateSink {
 public:
  explicit GenerateStream(std::shared_ptr<EventStream<v1::GenerateEvent>> stream)
      : stream_(std::move(stream)) {}

  void OnProgress(const v1::Progress& progress) override {
    v1::GenerateEvent event;
    *event.mutable_progress() = progress;
    stream_->Push(std::move(event));
  }
  void OnTokens(const v1::TokenBatch& tokens) override {
    v1::GenerateEvent event;
    *event.mutable_tokens() = tokens;
    stream_->Push(std::move(event));
  }
  void OnFinish(const absl::Status& status, const v1::Finish& finish) override {
    if (status.ok()) {
      v1::GenerateEvent event;
      *event.mutable_finish() = finish;
      stream_->Push(std::move(event));
    }
    stream_->Close(rpc::ToGrpc(status));
  }

 private:
  std::shared_ptr<EventStream<v1::GenerateEvent>> stream_;
};

class ScoreStream final : public ScoreSink {
 public:
  explicit ScoreStream(std::shared_ptr<EventStream<v1::ScoreChunk>> stream)
      : stream_(std::move(stream)) {}

  void OnScores(const v1::ScoreChunk& chunk) override { stream_->Push(chunk); }
  void OnFinish(const absl::Status& status) override { stream_->Close(rpc::ToGrpc(status)); }

 private:
  std::shared_ptr<EventStream<v1::ScoreChunk>> stream_;
};

// Opens a stream whose end or loss cancels the request that `submit` hands to the engine.
template <typename Message, typename Submit>
grpc::ServerWriteReactor<Message>* Open(Engine& engine, Submit submit) {
  const auto cancel = std::make_shared<CancelSwitch>(engine);
  auto stream = std::make_shared<EventStream<Message>>([cancel] { cancel->Pull(); });
  stream->Share(stream);
  const absl::StatusOr<RequestHandle> handle = submit(stream);
  if (handle.ok()) {
    cancel->Arm(*handle);
  } else {
    stream->Close(rpc::ToGrpc(handle.status()));
  }
  return stream.get();
}

grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* ComputeService::Describe(grpc::CallbackServerContext* context,
                                                   const v1::DescribeRequest*,
                                                   v1::DescribeResponse* response) {
  const ModelInfo& info = runtime_.model().info();
  *response->mutable_fingerprint() = runtime_.fingerprint();
  *response->mutable_state_layout() = runtime_.layout();
  response->set_context_length(static_cast<uint32_t>(runtime_.context_length()));
  response->set_context_trained(static_cast<uint32_t>(info.context_trained));
  response->set_vocab_size(static_cast<uint32_t>(info.vocab_size));
  response->set_max_sequences(config_.max_sequences());
  response->set_parameters(info.parameters);
  response->set_model_bytes(info.bytes);
  response->set_model_path(model_path_);
  response->set_prompt_routing(runtime_.engine().default_prompt_routing());
  return Done(context);
}

grpc::ServerWriteReactor<v1::GenerateEvent>* ComputeService::Generate(
    grpc::CallbackServerContext*, const v1::GenerateRequest* request) {
  return Open<v1::GenerateEvent>(runtime_.engine(), [&](const auto& stream) {
    return runtime_.engine().Generate(*request, std::make_shared<GenerateStream>(stream));
  });
}

grpc::ServerWriteReactor<v1::ScoreChunk>* ComputeService::Score(grpc::CallbackServerContext*,
                                                                const v1::ScoreRequest* request) {
  return Open<v1::ScoreChunk>(runtime_.engine(), [&](const auto& stream) {
    return runtime_.engine().Score(*request, std::make_shared<ScoreStream>(stream));
  });
}

grpc::ServerUnaryReactor* ComputeService::Status(grpc::CallbackServerContext* context,
                                                 const v1::ComputeStatusRequest*,
                                                 v1::ComputeStatusResponse* response) {
  const EngineStatus status = runtime_.engine().status();
  response->set_running(static_cast<uint32_t>(status.running));
  response->set_waiting(static_cast<uint32_t>(status.waiting));
  response->set_prompt_tokens(status.prompt_tokens);
  response->set_generated_tokens(status.generated_tokens);
  response->set_kv_pages_total(static_cast<uint64_t>(status.kv_pages_total));
  response->set_kv_pages_used(static_cast<uint64_t>(status.kv_pages_used));
  response->set_expert_hits(status.experts.hits);
  response->set_expert_misses(status.experts.misses);
  response->set_expert_wait_us(status.experts.wait_ns / 1000);
  response->set_expert_source(config_.expertstore() == "none" ? "mapped" : "arena");
  response->set_expertstore_connected(status.experts.connections > 0);
  response->set_kvstore_connected(store_ != nullptr && store_->connected());
  response->set_backend(std::string(runtime_.backend().description()));
  return Done(context);
}

grpc::ServerUnaryReactor* ComputeService::Drain(grpc::CallbackServerContext* context,
                                                const v1::DrainRequest*,
                                                v1::DrainResponse* response) {
  runtime_.engine().StopAccepting();
  const EngineStatus status = runtime_.engine().status();
  response->set_unfinished(static_cast<uint32_t>(status.running + status.waiting));
  return Done(context);
}

}  // namespace strata::compute
