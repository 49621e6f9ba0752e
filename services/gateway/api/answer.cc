#include "services/gateway/api/answer.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "common/base/log.h"
#include "common/tokenizer/line_starts.h"
#include "services/gateway/api/cache_explain.h"
#include "services/gateway/api/replay.h"
#include "services/gateway/api/sampling.h"
#include "services/gateway/http/request_id.h"
#include "services/gateway/http/wake.h"

namespace strata::gateway {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string Event(const std::string& json) {
  return json.empty() ? std::string() : absl::StrCat("data: ", json, "\n\n");
}

// One answer in the making.
class Choice {
 public:
  Choice(ApiContext& context, const AnswerPlan& plan, const ChoicePlan& choice)
      : plan_(plan),
        choice_(choice),
        text_(context.model, plan.parser, plan.stops, plan.logprobs),
        model_(*context.model) {
    const uint32_t room = context.engine->description()->context_length() -
                          static_cast<uint32_t>(choice.prompt->size());
    max_tokens_ = plan.max_tokens == 0 ? room : std::min(plan.max_tokens, room);
  }

  void Start(ApiContext& context, const Request& request, uint32_t index,
             std::function<void()> wake) {
    id_ = request.id;
    tenant_ = request.tenant;
    v1::GenerateRequest generate;
    // Compute tells requests apart by this id, so every choice needs its own.
    generate.set_request_id(index == 0 ? request.id : absl::StrCat(request.id, ".", index));
    generate.set_client(request.client);
    generate.mutable_prompt()->mutable_ids()->Add(choice_.prompt->begin(), choice_.prompt->end());
    *generate.mutable_sampling() = plan_.sampling;
    generate.mutable_sampling()->set_seed(choice_.seed);
    generate.set_max_tokens(max_tokens_);
    generate.set_min_tokens(plan_.min_tokens);
    generate.set_prompt_routing(plan_.prompt_routing);
    generate.set_prompt_routing_bound(plan_.prompt_routing_bound);
    generate.set_prompt_routing_budget(plan_.prompt_routing_budget);
    generate.set_logprobs(plan_.logprobs);
    generate.set_top_logprobs(plan_.top_logprobs);
    generate.set_save_state(true);
    generate.set_splice(SpliceModeFor(plan_, context.splice));
    if (generate.splice() != v1::SPLICE_OFF) {
      const std::vector<uint32_t> lines =
          tokenizer::LineStarts(*choice_.prompt, [this](uint32_t id) { return model_.Piece(id); });
      generate.mutable_line_starts()->Add(lines.begin(), lines.end());
    }
    if (!plan_.ignore_end) {
      for (const uint32_t id : model_.end_of_generation()) generate.add_stop_token_ids(id);
    }
    started_ = Clock::now();
    generation_.emplace(context.engine, std::move(generate), request.tenant, context.retry,
                        std::move(wake));
  }

  // Takes in what the engine did since the last call.
  void Advance(ApiContext& context, AnswerDelta* delta) {
    if (ended_) return;
    Take(context, delta);
    NoteParts(delta);
    // The beginning of a forced call was written for the model.
    if (ended_ && context.replays != nullptr && replayable_ && end_.reason == "tool_calls" &&
        !plan_.parser.starts_in_call) {
      context.replays->Put(tenant_, std::move(replay_));
    }
  }

  bool ended() const { return ended_; }
  const absl::Status& error() const { return error_; }
  const ChoiceEnd& end() const { return end_; }
  uint32_t generated() const { return generated_; }
  const AnswerText& text() const { return text_; }
  Clock::time_point next_poll() const {
    return generation_ ? generation_->next_poll() : Clock::time_point::max();
  }
  const std::optional<v1::Progress>& progress() const { return progress_; }

 private:
  void Take(ApiContext& context, AnswerDelta* delta) {
    Generation::Update update = generation_->Poll(Clock::now());
    if (update.plan) end_.plan = std::move(update.plan);
    if (update.progress) progress_ = std::move(update.progress);
    if (!update.tokens.empty()) CountTokens(context, update.tokens.size());
    for (const v1::GeneratedToken& token : update.tokens) {
      ++generated_;
      PushToken(token, delta);
      if (text_.stopped()) return End(context, "stop", std::nullopt, delta);
      if (plan_.single_tool_call && text_.tool_calls() > 0) {
        return End(context, "stop", std::nullopt, delta);
      }
      if (generated_ >= max_tokens_) return End(context, "length", update.finish, delta);
    }
    if (!update.error.ok()) {
      error_ = update.error;
      ended_ = true;
      generation_.reset();
    } else if (update.finish) {
      const bool stop = update.finish->reason() == v1::Finish::STOP_TOKEN;
      End(context, stop ? "stop" : "length", update.finish, delta);
    }
  }

  // Passes a token on, and keeps what a replay of this answer will need.
  void PushToken(const v1::GeneratedToken& token, AnswerDelta* delta) {
    const bool reasoned = text_.in_reasoning();
    text_.Push(token, delta);
    if (reasoned && !text_.in_reasoning()) {
      // Reasoning is the template's business, and so is the white space behind it.
      const bool at_its_end = token.id() < model_.vocab_size() &&
                              model_.Piece(token.id()) == MarkerText(Marker::kThinkClose);
      replayable_ = replayable_ && at_its_end && replay_.tokens.empty();
      skip_space_ = true;
    } else if (!text_.in_reasoning()) {
      skip_space_ = skip_space_ && IsSpace(token.id());
      if (!skip_space_) replay_.tokens.push_back(token.id());
    }
  }
  bool IsSpace(uint32_t id) const {
    return id < model_.vocab_size() &&
           model_.Piece(id).find_first_not_of(" \n\r\t") == std::string_view::npos;
  }
  // Names the calls of a new delta.
  void NoteParts(AnswerDelta* delta) {
    for (OutputPart& part : delta->parts) {
      if (part.kind == OutputPart::Kind::kContent) replay_.content += part.text;
      if (part.kind != OutputPart::Kind::kToolCall) continue;
      part.id = "call_" + RandomName(24);
      replay_.calls.push_back({part.id, part.name, part.arguments});
    }
  }

  void CountTokens(ApiContext& context, size_t tokens) {
    const Clock::time_point now = Clock::now();
    if (generated_ == 0) {
      context.metrics->FirstToken(SecondsSince(started_));
      first_token_ = now;
    } else {
      context.metrics->BetweenTokens(std::chrono::duration<double>(now - last_token_).count(),
                                     static_cast<uint32_t>(tokens));
    }
    last_token_ = now;
  }

  void End(ApiContext& context, std::string reason, const std::optional<v1::Finish>& finish,
           AnswerDelta* delta) {
    ended_ = true;
    text_.Finish(reason == "length", delta);
    if (text_.tool_calls() > 0 && !text_.ended_in_call()) reason = "tool_calls";
    end_.reason = std::move(reason);
    FillTimings(finish);
    if (finish) end_.usage = finish->usage();
    if (end_.plan && context.recent != nullptr && choice_.first_of_prompt) {
      context.recent->Add({id_, tenant_, choice_.prompt, *end_.plan});
    }
    if (generation_->restarts() > 0) context.metrics->Resumed(generation_->restarts());
    generation_.reset();  // cancels what still runs
    context.metrics->Finished(end_.reason);
    context.metrics->Prompt(end_.timings.cached_tokens + end_.timings.prompt_tokens,
                            end_.timings.cached_tokens, end_.timings.prompt_ms * 1e-3);
    context.metrics->Generated(generated_, end_.timings.generated_ms * 1e-3);
  }

  // Compute knows the exact times; an answer that we ended ourselves has only ours.
  void FillTimings(const std::optional<v1::Finish>& finish) {
    AnswerTimings& t = end_.timings;
    t.cached_tokens = finish      ? finish->usage().cached_tokens()
                      : progress_ ? progress_->cached_tokens()
                                  : 0;
    const auto prompt = static_cast<uint32_t>(choice_.prompt->size());
    t.cached_tokens = std::min(t.cached_tokens, prompt);
    t.prompt_tokens = prompt - t.cached_tokens;
    t.spliced_tokens = finish      ? finish->usage().spliced_tokens()
                       : progress_ ? progress_->spliced_tokens()
                                   : 0;
    t.spliced_tokens = std::min(t.spliced_tokens, t.cached_tokens);
    t.generated_tokens = generated_;
    if (finish) {
      t.prompt_ms = finish->timings().prompt_ms();
      t.generated_ms = finish->timings().generation_ms();
    } else if (generated_ > 0) {
      t.prompt_ms = std::chrono::duration<double, std::milli>(first_token_ - started_).count();
      t.generated_ms =
          std::chrono::duration<double, std::milli>(Clock::now() - first_token_).count();
    }
  }

  const AnswerPlan& plan_;
  const ChoicePlan& choice_;
  AnswerText text_;
  const Model& model_;
  std::string tenant_;
  Replay replay_;
  bool replayable_ = true;
  bool skip_space_ = false;
  std::optional<Generation> generation_;
  std::optional<v1::Progress> progress_;
  uint32_t max_tokens_;
  uint32_t generated_ = 0;
  bool ended_ = false;
  absl::Status error_;
  ChoiceEnd end_;
  Clock::time_point started_;
  Clock::time_point first_token_;
  Clock::time_point last_token_;
  std::string id_;
};

// Tells a person who looks at the stream, and keeps proxies and clients from giving up.
std::string Heartbeat(const Admission::Ticket& ticket, const std::deque<Choice>& choices) {
  if (!ticket.granted()) return absl::StrCat(": waiting, position ", ticket.position(), "\n\n");
  for (const Choice& choice : choices) {
    if (choice.generated() > 0) break;
    if (!choice.progress()) continue;
    return absl::StrCat(": reading the prompt, ", choice.progress()->read_tokens(), " of ",
                        choice.progress()->prompt_tokens(), " tokens\n\n");
  }
  return ": working\n\n";
}

AnswerUsage Usage(const AnswerPlan& plan, const std::deque<Choice>& choices) {
  AnswerUsage usage;
  for (size_t i = 0; i < choices.size(); ++i) {
    usage.completion_tokens += choices[i].generated();
    usage.reasoning_tokens += choices[i].text().reasoning_tokens();
    if (!plan.choices[i].first_of_prompt) continue;
    usage.prompt_tokens += static_cast<uint32_t>(plan.choices[i].prompt->size());
    usage.cached_tokens += choices[i].end().timings.cached_tokens;
    usage.spliced_tokens += choices[i].end().timings.spliced_tokens;
    if (!usage.plan) usage.plan = choices[i].end().plan;
    const v1::Usage& routed = choices[i].end().usage;
    if (routed.prompt_routing() > v1::FULL) usage.routed = routed;
  }
  return usage;
}

void Append(AnswerDelta delta, AnswerDelta* whole) {
  for (OutputPart& part : delta.parts) {
    const bool joins = !whole->parts.empty() && part.kind != OutputPart::Kind::kToolCall &&
                       whole->parts.back().kind == part.kind;
    if (joins) {
      whole->parts.back().text += part.text;
    } else {
      whole->parts.push_back(std::move(part));
    }
  }
  for (v1::GeneratedToken& token : delta.tokens) whole->tokens.push_back(std::move(token));
}

std::optional<ApiError> Refuse(ApiContext& context, const AnswerPlan& plan) {
  const auto description = context.engine->description();
  if (description == nullptr || context.engine->state() == EngineState::kStarting ||
      context.engine->state() == EngineState::kWrong) {
    context.metrics->Rejected("not_ready");
    ApiError error;
    error.status = 503;
    error.message = absl::StrCat("The model is not ready: ", context.engine->reason());
    error.retry_after_s = 2;
    return error;
  }
  context.admission->SetSlots(description->max_sequences());
  if (plan.choices.size() > context.admission->slots()) {
    ApiError error;
    error.status = 400;
    error.param = "n";
    error.message =
        absl::StrCat("This server generates at most ", context.admission->slots(),
                     " answers at a time, the request asks for ", plan.choices.size(), ".");
    return error;
  }
  const uint32_t limit = description->context_length();
  for (const ChoicePlan& choice : plan.choices) {
    if (choice.prompt->size() < limit) continue;
    context.metrics->Rejected("context");
    ApiError error;
    error.status = 400;
    error.code = "context_length_exceeded";
    error.message =
        absl::StrCat("This model's maximum context length is ", limit,
                     " tokens. However, your messages resulted "
                     "in ",
                     choice.prompt->size(), " tokens. Please reduce the length of the messages.");
    error.extra = {{"n_prompt_tokens", std::to_string(choice.prompt->size())},
                   {"n_ctx", std::to_string(limit)}};
    return error;
  }
  return std::nullopt;
}

ApiError QueueFull(ApiContext& context, const absl::Status& status) {
  context.metrics->Rejected("queue_full");
  ApiError error;
  error.status = 429;
  error.code = "queue_full";
  error.message = std::string(status.message());
  error.retry_after_s = static_cast<int>(context.admission->RetryAfterSeconds());
  return error;
}

// The parts of RunAnswer that both modes share.
class Answer {
 public:
  Answer(ApiContext& context, Exchange& exchange, const AnswerPlan& plan, AnswerShape& shape)
      : context_(context),
        exchange_(exchange),
        plan_(plan),
        shape_(shape),
        wake_(Wake::Create(exchange.executor())) {
    exchange_.OnGone([wake = wake_] { wake->Notify(); });
  }

  // Nothing, or the refusal.
  std::optional<ApiError> Queue() {
    auto ticket = context_.admission->Enter(exchange_.request().client,
                                            static_cast<uint32_t>(plan_.choices.size()),
                                            [wake = wake_] { wake->Notify(); });
    if (!ticket.ok()) return QueueFull(context_, ticket.status());
    ticket_ = *std::move(ticket);
    return std::nullopt;
  }

  asio::awaitable<void> Stream();
  asio::awaitable<void> Collect();

 private:
  void StartChoices() {
    context_.metrics->QueueTime(std::chrono::duration<double>(ticket_->waited()).count());
    for (size_t i = 0; i < plan_.choices.size(); ++i) {
      choices_.emplace_back(context_, plan_, plan_.choices[i]);
    }
    for (size_t i = 0; i < choices_.size(); ++i) {
      choices_[i].Start(context_, exchange_.request(), static_cast<uint32_t>(i),
                        [wake = wake_] { wake->Notify(); });
    }
  }
  bool AllEnded() const {
    return std::all_of(choices_.begin(), choices_.end(),
                       [](const Choice& choice) { return choice.ended(); });
  }
  const absl::Status* FirstError() const {
    for (const Choice& choice : choices_) {
      if (!choice.error().ok()) return &choice.error();
    }
    return nullptr;
  }
  Clock::time_point NextPoll(Clock::time_point latest) const {
    for (const Choice& choice : choices_) latest = std::min(latest, choice.next_poll());
    return latest;
  }
  // What is to be sent now. Sets `failed` to the error that ends the stream.
  std::string TakeEvents(std::vector<bool>* ended, const absl::Status** failed);
  void CountGone() {
    context_.metrics->Finished("cancelled");
    LogInfo("request ", exchange_.request().id, ": the client is gone");
  }

  ApiContext& context_;
  Exchange& exchange_;
  const AnswerPlan& plan_;
  AnswerShape& shape_;
  const std::shared_ptr<Wake> wake_;
  std::unique_ptr<Admission::Ticket> ticket_;
  std::deque<Choice> choices_;
};

std::string Answer::TakeEvents(std::vector<bool>* ended, const absl::Status** failed) {
  std::string out;
  for (uint32_t i = 0; i < choices_.size(); ++i) {
    AnswerDelta delta;
    choices_[i].Advance(context_, &delta);
    if (!delta.empty()) {
      for (const std::string& json : shape_.StreamDelta(i, delta)) out += Event(json);
    }
    if (!choices_[i].ended() || (*ended)[i]) continue;
    (*ended)[i] = true;
    if (choices_[i].error().ok()) out += Event(shape_.StreamEnd(i, choices_[i].end()));
  }
  *failed = FirstError();
  return out;
}

asio::awaitable<void> Answer::Stream() {
  bool alive = co_await exchange_.StartStream("text/event-stream; charset=utf-8");
  std::string out;
  for (uint32_t i = 0; i < plan_.choices.size(); ++i) out += Event(shape_.StreamBegin(i));
  if (alive) alive = co_await exchange_.Write(out);
  std::vector<bool> ended(plan_.choices.size(), false);
  const absl::Status* failed = nullptr;
  bool done = false;
  Clock::time_point sent = Clock::now();
  while (alive && !exchange_.gone() && !done) {
    if (choices_.empty() && ticket_->granted()) StartChoices();
    out = TakeEvents(&ended, &failed);
    done = failed != nullptr || (!choices_.empty() && AllEnded());
    if (failed != nullptr) {
      out += Event(ErrorBody(EngineError(*failed)));
    } else if (done) {
      if (plan_.include_usage) out += Event(shape_.StreamUsage(Usage(plan_, choices_)));
      out += "data: [DONE]\n\n";
    } else if (out.empty() && Clock::now() - sent >= context_.heartbeat) {
      out = Heartbeat(*ticket_, choices_);
    }
    if (!out.empty()) {
      alive = co_await exchange_.Write(out);
      sent = Clock::now();
    }
    if (!done && alive) co_await wake_->WaitUntil(NextPoll(sent + context_.heartbeat));
  }
  if (!done) CountGone();
  if (failed != nullptr) context_.metrics->Finished("error");
  choices_.clear();
  ticket_.reset();
  co_await exchange_.EndStream();
}

asio::awaitable<void> Answer::Collect() {
  std::vector<AnswerDelta> whole(plan_.choices.size());
  while (!exchange_.gone()) {
    if (choices_.empty() && ticket_->granted()) StartChoices();
    for (size_t i = 0; i < choices_.size(); ++i) {
      AnswerDelta delta;
      choices_[i].Advance(context_, &delta);
      Append(std::move(delta), &whole[i]);
    }
    if (FirstError() != nullptr || (!choices_.empty() && AllEnded())) break;
    co_await wake_->WaitUntil(NextPoll(Clock::now() + context_.heartbeat));
  }
  if (exchange_.gone()) {
    CountGone();
    co_return;
  }
  Response response;
  if (const absl::Status* failed = FirstError(); failed != nullptr) {
    context_.metrics->Finished("error");
    response = ErrorResponse(EngineError(*failed));
  } else {
    std::vector<ChoiceEnd> ends;
    for (const Choice& choice : choices_) ends.push_back(choice.end());
    response.body = shape_.Whole(whole, ends, Usage(plan_, choices_));
  }
  choices_.clear();
  ticket_.reset();
  co_await exchange_.Respond(std::move(response));
}

}  // namespace

ApiError EngineError(const absl::Status& status) {
  ApiError error;
  error.message = std::string(status.message());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      error.status = 400;
      break;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
      // The transport's own words name sockets and addresses.
      error.message = "The engine failed while it worked on this request and did not come back.";
      [[fallthrough]];
    case absl::StatusCode::kResourceExhausted:
      error.status = 503;
      error.code = "engine_unavailable";
      error.retry_after_s = 5;
      break;
    default:
      error.status = 500;
      error.code = "engine_failed";
  }
  return error;
}

asio::awaitable<void> RunAnswer(ApiContext& context, Exchange& exchange, const AnswerPlan& plan,
                                AnswerShape& shape) {
  Answer answer(context, exchange, plan, shape);
  std::optional<ApiError> refusal = Refuse(context, plan);
  if (!refusal) refusal = answer.Queue();
  if (refusal) {
    Response response = ErrorResponse(*refusal);
    co_await exchange.Respond(std::move(response));
  } else if (plan.stream) {
    co_await answer.Stream();
  } else {
    co_await answer.Collect();
  }
}

}  // namespace strata::gateway
