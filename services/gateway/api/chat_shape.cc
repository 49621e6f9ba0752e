#include "services/gateway/api/chat_shape.h"

#include <boost/json/array.hpp>

#include "services/gateway/api/cache_explain.h"
#include "services/gateway/api/sampling.h"
#include "services/gateway/http/request_id.h"
#include "services/gateway/json/json.h"

namespace strata::gateway {
namespace {

namespace json = boost::json;

json::array Bytes(std::string_view piece) {
  json::array bytes;
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

// `bytes` says what `token` cannot when the token is a part of a character.
json::object LogprobJson(const Model& model, uint32_t id, float logprob) {
  const std::string_view piece = id < model.vocab_size() ? model.Piece(id) : std::string_view();
  return {{"token", std::string(piece)}, {"logprob", logprob}, {"bytes", Bytes(piece)}};
}

json::array One(json::object object) {
  json::array array;
  array.push_back(std::move(object));
  return array;
}

json::object FunctionJson(const std::string& name, const std::string& arguments) {
  return {{"name", name}, {"arguments", arguments}};
}

double PerSecond(uint32_t tokens, double ms) { return ms > 0 ? tokens / ms * 1e3 : 0; }
double PerToken(uint32_t tokens, double ms) { return tokens > 0 ? ms / tokens : 0; }

}  // namespace

json::object UsageJson(const AnswerUsage& usage) {
  json::object prompt{{"cached_tokens", usage.cached_tokens}};
  // Our own field, shown only where it says something.
  if (usage.spliced_tokens > 0) prompt["spliced_tokens"] = usage.spliced_tokens;
  if (usage.plan && !usage.plan->conversation().empty()) prompt["cache"] = CacheJson(*usage.plan);
  json::object out = {
      {"prompt_tokens", usage.prompt_tokens},
      {"completion_tokens", usage.completion_tokens},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
      {"prompt_tokens_details", std::move(prompt)},
      {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
  const v1::Usage& routed = usage.routed;
  if (routed.prompt_routing() > v1::FULL) {
    out["prompt_routing"] = {
        {"mode", routed.prompt_routing() == v1::GUARDED ? "guarded" : "resident"},
        {"choices", routed.routed_choices()},
        {"substituted_choices", routed.substituted_choices()},
        {"kept_router_mass", routed.kept_router_mass()},
        {"bytes_not_read", routed.bytes_not_read()}};
  }
  return out;
}

json::object TimingsJson(const AnswerTimings& t) {
  return {{"cache_n", t.cached_tokens},
          {"prompt_n", t.prompt_tokens},
          {"prompt_ms", t.prompt_ms},
          {"prompt_per_token_ms", PerToken(t.prompt_tokens, t.prompt_ms)},
          {"prompt_per_second", PerSecond(t.prompt_tokens, t.prompt_ms)},
          {"predicted_n", t.generated_tokens},
          {"predicted_ms", t.generated_ms},
          {"predicted_per_token_ms", PerToken(t.generated_tokens, t.generated_ms)},
          {"predicted_per_second", PerSecond(t.generated_tokens, t.generated_ms)}};
}

ChatShape::ChatShape(const Model* model, std::string model_label, bool logprobs, bool include_usage)
    : model_(model),
      label_(std::move(model_label)),
      logprobs_(logprobs),
      include_usage_(include_usage),
      id_("chatcmpl-" + RandomName(24)),
      created_(UnixTime()) {}

std::string ChatShape::Chunk(uint32_t choice, json::object delta, json::value finish,
                             json::value logprobs, const AnswerTimings* timings) {
  json::object entry{{"index", choice}, {"delta", std::move(delta)}};
  entry["logprobs"] = std::move(logprobs);
  entry["finish_reason"] = std::move(finish);
  json::object chunk{
      {"id", id_}, {"object", "chat.completion.chunk"}, {"created", created_}, {"model", label_}};
  json::array choices;
  choices.push_back(std::move(entry));
  chunk["choices"] = std::move(choices);
  if (include_usage_) chunk["usage"] = nullptr;
  if (timings != nullptr) chunk["timings"] = TimingsJson(*timings);
  return ToJson(chunk);
}

json::value ChatShape::Logprobs(const std::vector<v1::GeneratedToken>& tokens) const {
  if (!logprobs_ || tokens.empty()) return nullptr;
  json::array content;
  for (const v1::GeneratedToken& token : tokens) {
    json::object entry = LogprobJson(*model_, token.id(), token.logprob());
    json::array top;
    for (const v1::TokenLogprob& other : token.top()) {
      top.push_back(LogprobJson(*model_, other.id(), other.logprob()));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  json::object result;
  result["content"] = std::move(content);
  result["refusal"] = nullptr;
  return result;
}

std::string ChatShape::StreamBegin(uint32_t choice) {
  if (calls_.size() <= choice) calls_.resize(choice + 1, 0);
  json::object delta{{"role", "assistant"}, {"content", ""}};
  return Chunk(choice, std::move(delta), nullptr, nullptr, nullptr);
}

std::vector<std::string> ChatShape::StreamDelta(uint32_t choice, const AnswerDelta& delta) {
  std::vector<std::string> chunks;
  json::value logprobs = Logprobs(delta.tokens);
  for (const OutputPart& part : delta.parts) {
    if (part.kind != OutputPart::Kind::kToolCall) {
      const bool reasoning = part.kind == OutputPart::Kind::kReasoning;
      json::object body;
      body[reasoning ? "reasoning_content" : "content"] = part.text;
      chunks.push_back(Chunk(choice, std::move(body), nullptr, std::move(logprobs), nullptr));
      logprobs = nullptr;
      continue;
    }
    // The arguments follow in a delta of their own: clients drop those of the first one.
    const uint32_t index = calls_[choice]++;
    json::object call{{"index", index}, {"id", part.id}, {"type", "function"}};
    call["function"] = FunctionJson(part.name, "");
    json::object begin;
    begin["tool_calls"] = One(std::move(call));
    chunks.push_back(Chunk(choice, std::move(begin), nullptr, std::move(logprobs), nullptr));
    logprobs = nullptr;
    json::object rest{{"index", index}};
    json::object function;
    function["arguments"] = part.arguments;
    rest["function"] = std::move(function);
    json::object next;
    next["tool_calls"] = One(std::move(rest));
    chunks.push_back(Chunk(choice, std::move(next), nullptr, nullptr, nullptr));
  }
  if (!logprobs.is_null()) {
    json::object nothing;
    nothing["content"] = "";
    chunks.push_back(Chunk(choice, std::move(nothing), nullptr, std::move(logprobs), nullptr));
  }
  return chunks;
}

std::string ChatShape::StreamEnd(uint32_t choice, const ChoiceEnd& end) {
  return Chunk(choice, {}, json::value(end.reason), nullptr, &end.timings);
}

std::string ChatShape::StreamUsage(const AnswerUsage& usage) {
  json::object chunk{
      {"id", id_}, {"object", "chat.completion.chunk"}, {"created", created_}, {"model", label_}};
  chunk["choices"] = json::array();
  chunk["usage"] = UsageJson(usage);
  return ToJson(chunk);
}

std::string ChatShape::Whole(const std::vector<AnswerDelta>& choices,
                             const std::vector<ChoiceEnd>& ends, const AnswerUsage& usage) {
  json::array list;
  for (size_t i = 0; i < choices.size(); ++i) {
    std::string reasoning;
    std::string content;
    json::array calls;
    for (const OutputPart& part : choices[i].parts) {
      if (part.kind == OutputPart::Kind::kReasoning) reasoning += part.text;
      if (part.kind == OutputPart::Kind::kContent) content += part.text;
      if (part.kind == OutputPart::Kind::kToolCall) {
        json::object call{{"id", part.id}, {"type", "function"}};
        call["function"] = FunctionJson(part.name, part.arguments);
        calls.push_back(std::move(call));
      }
    }
    json::object message{{"role", "assistant"}};
    if (content.empty() && !calls.empty()) {
      message["content"] = nullptr;
    } else {
      message["content"] = content;
    }
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    json::object entry{{"index", i}};
    entry["message"] = std::move(message);
    entry["logprobs"] = Logprobs(choices[i].tokens);
    entry["finish_reason"] = ends[i].reason;
    list.push_back(std::move(entry));
  }
  json::object whole{
      {"id", id_}, {"object", "chat.completion"}, {"created", created_}, {"model", label_}};
  whole["choices"] = std::move(list);
  whole["usage"] = UsageJson(usage);
  whole["timings"] = TimingsJson(ends[0].timings);
  return ToJson(whole);
}

}  // namespace strata::gateway
