#include "services/gateway/api/cache_explain.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <boost/json/array.hpp>

#include "common/base/status.h"
#include "common/tokenizer/line_starts.h"
#include "services/gateway/api/answer.h"
#include "services/gateway/api/chat_request.h"
#include "services/gateway/api/completion_request.h"
#include "services/gateway/api/sampling.h"
#include "services/gateway/json/json.h"
#include "services/gateway/json/utf8.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace strata::gateway {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

constexpr size_t kMaxLine = 200;  // bytes shown of a line

std::string Shown(std::string line) {
  if (line.size() > kMaxLine) line = line.substr(0, kMaxLine) + "...";
  return ToValidUtf8(line);
}

// The line around a token of the prompt, and how it goes on in the stored text.
struct Divergence {
  uint32_t line = 1;
  std::string text;
  std::string stored;
};

Divergence FindLine(const Model& model, std::span<const uint32_t> prompt, uint32_t token,
                    const v1::TokenIds& stored) {
  Divergence found;
  for (const uint32_t id : prompt.first(token)) {
    for (const char c : model.Piece(id)) {
      found.text += c;
      if (c != '\n') continue;
      found.text.clear();
      ++found.line;
    }
  }
  found.stored = found.text;
  const auto go_on = [&](std::string* line, auto begin, auto end) {
    for (auto id = begin; id != end && line->size() <= kMaxLine; ++id) {
      if (*id >= model.vocab_size()) return;
      for (const char c : model.Piece(*id)) {
        if (c == '\n') return;
        *line += c;
      }
    }
  };
  const auto rest = prompt.subspan(token);
  go_on(&found.text, rest.begin(), rest.end());
  go_on(&found.stored, stored.ids().begin(), stored.ids().end());
  found.text = Shown(std::move(found.text));
  found.stored = Shown(std::move(found.stored));
  return found;
}

std::string Hex(const std::string& id) { return std::string(absl::BytesToHexString(id)); }

uint32_t MovedTokens(const v1::PlanResponse& plan) {
  uint32_t moved = 0;
  for (const v1::MovedRun& run : plan.plan().runs()) moved += run.tokens();
  return moved;
}

struct Prompt {
  std::shared_ptr<const std::vector<uint32_t>> tokens;
  v1::SpliceMode splice = v1::SPLICE_OFF;
  std::optional<ApiError> error;
};

Prompt ReadPrompt(const ApiContext& context, const Request& request) {
  const std::string_view body = request.body;
  const Body parsed = ParseBody(body);
  if (parsed.error) return {nullptr, {}, parsed.error};
  AnswerPlan plan;
  if (Field(parsed.object, "prompt") != nullptr) {
    CompletionResult read = ReadCompletionRequest(context, body);
    if (read.error) return {nullptr, {}, read.error};
    plan = std::move(read.plan);
  } else {
    ChatResult read = ReadChatRequest(context, body, request.tenant);
    if (read.error) return {nullptr, {}, read.error};
    plan = std::move(read.request.plan);
  }
  return {plan.choices[0].prompt, SpliceModeFor(plan, context.splice), std::nullopt};
}

Response ExplainNow(const ApiContext& context, const Request& request) {
  const Prompt prompt = ReadPrompt(context, request);
  if (prompt.error) return ErrorResponse(*prompt.error);
  v1::PlanRequest ask;
  ask.set_request_id(request.id);
  ask.mutable_tokens()->mutable_ids()->Assign(prompt.tokens->begin(), prompt.tokens->end());
  ask.set_splice(prompt.splice);
  if (ask.splice() != v1::SPLICE_OFF) {
    const std::vector<uint32_t> lines = tokenizer::LineStarts(
        *prompt.tokens, [&](uint32_t id) { return context.model->Piece(id); });
    ask.mutable_line_starts()->Assign(lines.begin(), lines.end());
  }
  const absl::StatusOr<v1::PlanResponse> plan =
      context.engine->Explain(std::move(ask), request.tenant);
  if (!plan.ok()) return ErrorResponse(EngineError(plan.status()));
  Response response;
  response.body = ToJson(ExplanationJson(*context.model, *prompt.tokens, *plan));
  return response;
}

}  // namespace

void RecentPlans::Add(RecentPlan plan) {
  plans_.push_back(std::move(plan));
  if (plans_.size() > kKept) plans_.pop_front();
}

const RecentPlan* RecentPlans::Find(std::string_view request_id, std::string_view tenant) const {
  const auto it = std::find_if(plans_.rbegin(), plans_.rend(), [&](const RecentPlan& plan) {
    return plan.request_id == request_id && plan.tenant == tenant;
  });
  return it == plans_.rend() ? nullptr : &*it;
}

json::object CacheJson(const v1::PlanResponse& plan) {
  return {{"conversation", Hex(plan.conversation())},
          {"reused_tokens", plan.plan().reused_tokens()},
          {"moved_tokens", MovedTokens(plan)},
          {"first_different_token", plan.first_different_token()}};
}

json::object ExplanationJson(const Model& model, std::span<const uint32_t> prompt,
                             const v1::PlanResponse& plan) {
  const auto size = static_cast<uint32_t>(prompt.size());
  const uint32_t reused = std::min(plan.plan().reused_tokens(), size);
  const uint32_t moved = std::min(MovedTokens(plan), size - reused);
  const uint32_t differs = std::min(plan.first_different_token(), size);
  json::object out{{"object", "cache.explanation"}, {"prompt_tokens", size}};
  out["conversation"] = nullptr;
  if (!plan.conversation().empty()) out["conversation"] = Hex(plan.conversation());
  out["reused_tokens"] = reused;
  out["moved_tokens"] = moved;
  out["read_tokens"] = size - reused - moved;
  json::array runs;
  for (const v1::MovedRun& run : plan.plan().runs()) {
    runs.push_back(json::object{{"first_token", run.first_token()},
                                {"tokens", run.tokens()},
                                {"old_first_token", run.old_first_token()}});
  }
  out["runs"] = std::move(runs);
  out["diverged"] = nullptr;
  if (plan.conversation().empty()) {
    out["summary"] = "nothing like this prompt is stored";
  } else if (differs == size) {
    out["summary"] = "all of the prompt is stored";
  } else {
    const Divergence line = FindLine(model, prompt, differs, plan.stored_instead());
    const std::string place = absl::StrCat("token ", differs, ", line ", line.line);
    json::object diverged{{"token", differs}, {"line", line.line}, {"text", line.text}};
    if (plan.stored_instead().ids().empty() && plan.plan().runs().empty()) {
      out["summary"] = absl::StrCat("the stored conversation ends at ", place);
    } else {
      if (!plan.stored_instead().ids().empty()) diverged["stored"] = line.stored;
      out["summary"] = absl::StrCat("diverged at ", place, ": `", line.text, "`");
    }
    out["diverged"] = std::move(diverged);
  }
  return out;
}

asio::awaitable<void> ExplainPrompt(ApiContext& context, Exchange& exchange) {
  Response response;
  co_await context.pool->Run([&] { response = ExplainNow(context, exchange.request()); });
  co_await exchange.Respond(std::move(response));
}

asio::awaitable<void> ExplainAnswer(ApiContext& context, Exchange& exchange) {
  const Request& request = exchange.request();
  const RecentPlan* found = context.recent == nullptr
                                ? nullptr
                                : context.recent->Find(request.path_parameter, request.tenant);
  Response response;
  if (found == nullptr) {
    ApiError error;
    error.status = 404;
    error.message =
        absl::StrCat("No answer with the id '", request.path_parameter, "' among the last ",
                     RecentPlans::kKept, " that kvstore was asked for.");
    response = ErrorResponse(error);
  } else {
    const RecentPlan plan = *found;  // others may be added while this one is looked at
    co_await context.pool->Run(
        [&] { response.body = ToJson(ExplanationJson(*context.model, *plan.prompt, plan.plan)); });
  }
  co_await exchange.Respond(std::move(response));
}

}  // namespace strata::gateway
