#include "services/compute/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "common/base/status.h"
#include "services/compute/engine/inbox.h"
#include "services/compute/engine/step_loop.h"

namespace strata::compute {

class Engine::Impl {
 public:
  Parts parts;
  EngineOptions options;
  Inbox inbox;
  std::unique_ptr<StepLoop> loop;
  std::thread thread;
  std::atomic<SequenceId> next_id{1};
  std::atomic<bool> accepting{true};

  absl::Status CheckTokens(const v1::TokenIds& tokens) const {
    const auto vocab = static_cast<uint32_t>(parts.model->info().vocab_size);
    if (tokens.ids().empty()) return absl::InvalidArgumentError("the prompt has no tokens");
    for (const uint32_t id : tokens.ids()) {
      if (id >= vocab) {
        return absl::InvalidArgumentError(
            absl::StrCat("token ", id, " is outside the vocabulary of ", vocab));
      }
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Sequence> NewSequence(const v1::TokenIds& tokens, const std::string& request_id) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = next_id.fetch_add(1);
    sequence->request_id = request_id;
    sequence->tokens.assign(tokens.ids().begin(), tokens.ids().end());
    sequence->prompt_tokens = sequence->total();
    sequence->submitted = Clock::now();
    return sequence;
  }

  absl::StatusOr<RequestHandle> Submit(std::unique_ptr<Sequence> sequence) {
    const RequestHandle handle = sequence->id;
    inbox.Post(SubmitMessage{std::move(sequence)});
    return handle;
  }
};

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const Parts& parts,
                                                       const EngineOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->parts = parts;
  impl->options = options;
  STRATA_ASSIGN_OR_RETURN(impl->loop, StepLoop::Create(parts, options, impl->inbox));
  impl->thread = std::thread([loop = impl->loop.get()] { loop->Run(); });
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  impl_->inbox.Post(StopMessage{});
  impl_->thread.join();
}

absl::StatusOr<RequestHandle> Engine::Generate(v1::GenerateRequest request,
                                               std::shared_ptr<GenerateSink> sink) {
  if (!impl_->accepting) return absl::UnavailableError("the compute daemon is draining");
  STRATA_RETURN_IF_ERROR(impl_->CheckTokens(request.prompt()));
  const int vocab = impl_->parts.model->info().vocab_size;
  STRATA_RETURN_IF_ERROR(ValidateSampling(request.sampling(), vocab));
  for (const uint32_t id : request.stop_token_ids()) {
    if (id >= static_cast<uint32_t>(vocab)) {
      return absl::InvalidArgumentError(
          absl::StrCat("stop token ", id, " is outside the vocabulary of ", vocab));
    }
  }
  std::unique_ptr<Sequence> sequence = impl_->NewSequence(request.prompt(), request.request_id());
  const int prompt = sequence->prompt_tokens;
  const int page_tokens = impl_->parts.kv->pages() * KvCache::kPageTokens;
  const int room = std::min(impl_->options.context_length, page_tokens);
  if (prompt >= room) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt has ", prompt, " tokens, the context holds ", room, " including the answer"));
  }
  const auto resumed = std::min<uint32_t>(request.resumed_tokens(), static_cast<uint32_t>(prompt));
  request.set_resumed_tokens(resumed);
  uint32_t allowed = static_cast<uint32_t>(room - prompt);
  if (request.max_tokens() != 0) {
    if (request.max_tokens() <= resumed) {
      return absl::InvalidArgumentError(absl::StrCat("max_tokens = ", request.max_tokens(),
                                                     " was already reached by ", resumed,
                                                     " resumed tokens"));
    }
    allowed = std::min(allowed, request.max_tokens() - resumed);
  }
  sequence->max_total_tokens = prompt + static_cast<int>(allowed);
  sequence->sampler.emplace(request.sampling(), vocab);
  for (int i = 0; i < prompt; ++i) {
    sequence->sampler->Observe(sequence->tokens[static_cast<size_t>(i)],
                               /*generated=*/i >= prompt - static_cast<int>(resumed));
  }
  sequence->request = std::move(request);
  sequence->sink = std::move(sink);
  return impl_->Submit(std::move(sequence));
}

absl::StatusOr<RequestHandle> Engine::Score(v1::ScoreRequest request,
                                            std::shared_ptr<ScoreSink> sink) {
  if (!impl_->accepting) return absl::UnavailableError("the compute daemon is draining");
  STRATA_RETURN_IF_ERROR(impl_->CheckTokens(request.tokens()));
  std::unique_ptr<Sequence> sequence = impl_->NewSequence(request.tokens(), request.request_id());
  const int room =
      std::min(impl_->options.context_length, impl_->parts.kv->pages() * KvCache::kPageTokens);
  const uint32_t restored = request.restore().runs().empty()
                                ? request.restore().reused_tokens()
                                : request.restore().runs().rbegin()->first_token() +
                                      request.restore().runs().rbegin()->tokens();
  if (restored > request.first_position()) {
    return absl::InvalidArgumentError(absl::StrCat("scores from position ",
                                                   request.first_position(), " on need what is ",
                                                   "restored up to ", restored));
  }
  if (sequence->prompt_tokens > room) {
    return absl::InvalidArgumentError(absl::StrCat("the text has ", sequence->prompt_tokens,
                                                   " tokens, the context holds ", room));
  }
  sequence->max_total_tokens = sequence->prompt_tokens;
  // Restored alike, whatever is done with the rest.
  *sequence->request.mutable_restore() = std::move(*request.mutable_restore());
  if (request.has_splice_budget()) sequence->request.set_splice_budget(request.splice_budget());
  sequence->score = std::move(request);
  sequence->score_sink = std::move(sink);
  return impl_->Submit(std::move(sequence));
}

void Engine::Cancel(RequestHandle handle) { impl_->inbox.Post(CancelMessage{handle}); }

void Engine::StopAccepting() { impl_->accepting = false; }

v1::PromptRouting Engine::default_prompt_routing() const {
  return ToProto(DefaultRouting(impl_->parts, impl_->options));
}

EngineStatus Engine::status() const { return impl_->loop->status(); }

}  // namespace strata::compute
