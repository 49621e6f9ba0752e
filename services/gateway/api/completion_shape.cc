#include "services/gateway/api/completion_shape.h"

#include <boost/json/array.hpp>

#include "services/gateway/api/chat_shape.h"
#include "services/gateway/api/sampling.h"
#include "services/gateway/http/request_id.h"
#include "services/gateway/json/json.h"
#include "services/gateway/json/utf8.h"

namespace strata::gateway {
namespace {

namespace json = boost::json;

std::string TextOf(const AnswerDelta& delta) {
  std::string text;
  for (const OutputPart& part : delta.parts) text += part.text;
  return text;
}

}  // namespace

CompletionShape::CompletionShape(const Model* model, std::string model_label,
                                 const AnswerPlan* plan)
    : model_(model),
      label_(std::move(model_label)),
      plan_(plan),
      id_("cmpl-" + RandomName(24)),
      created_(UnixTime()),
      offsets_(plan->choices.size(), 0) {}

json::object CompletionShape::Envelope() const {
  return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", label_}};
}

std::string CompletionShape::Chunk(uint32_t choice, std::string_view text, json::value logprobs,
                                   json::value finish, const AnswerTimings* timings) const {
  json::object entry{{"index", choice}, {"text", std::string(text)}};
  entry["logprobs"] = std::move(logprobs);
  entry["finish_reason"] = std::move(finish);
  json::object chunk = Envelope();
  json::array choices;
  choices.push_back(std::move(entry));
  chunk["choices"] = std::move(choices);
  if (plan_->include_usage) chunk["usage"] = nullptr;
  if (timings != nullptr) chunk["timings"] = TimingsJson(*timings);
  return ToJson(chunk);
}

json::value CompletionShape::Logprobs(uint32_t choice,
                                      const std::vector<v1::GeneratedToken>& tokens) {
  if (!plan_->logprobs || tokens.empty()) return nullptr;
  const auto piece = [this](uint32_t id) {
    return ToValidUtf8(id < model_->vocab_size() ? model_->Piece(id) : std::string_view());
  };
  json::array texts;
  json::array logprobs;
  json::array tops;
  json::array offsets;
  for (const v1::GeneratedToken& token : tokens) {
    const std::string text = piece(token.id());
    json::object top;
    for (const v1::TokenLogprob& other : token.top()) top[piece(other.id())] = other.logprob();
    texts.emplace_back(text);
    logprobs.emplace_back(token.logprob());
    tops.push_back(std::move(top));
    offsets.emplace_back(offsets_[choice]);
    offsets_[choice] += text.size();
  }
  json::object result;
  result["tokens"] = std::move(texts);
  result["token_logprobs"] = std::move(logprobs);
  result["top_logprobs"] = std::move(tops);
  result["text_offset"] = std::move(offsets);
  return result;
}

std::string CompletionShape::StreamBegin(uint32_t choice) {
  const std::string& echo = plan_->choices[choice].echo;
  if (echo.empty()) return {};
  return Chunk(choice, echo, nullptr, nullptr, nullptr);
}

std::vector<std::string> CompletionShape::StreamDelta(uint32_t choice, const AnswerDelta& delta) {
  std::vector<std::string> chunks;
  chunks.push_back(Chunk(choice, TextOf(delta), Logprobs(choice, delta.tokens), nullptr, nullptr));
  return chunks;
}

std::string CompletionShape::StreamEnd(uint32_t choice, const ChoiceEnd& end) {
  return Chunk(choice, "", nullptr, json::value(end.reason), &end.timings);
}

std::string CompletionShape::StreamUsage(const AnswerUsage& usage) {
  json::object chunk = Envelope();
  chunk["choices"] = json::array();
  chunk["usage"] = UsageJson(usage);
  return ToJson(chunk);
}

std::string CompletionShape::Whole(const std::vector<AnswerDelta>& choices,
                                   const std::vector<ChoiceEnd>& ends, const AnswerUsage& usage) {
  json::array list;
  for (uint32_t i = 0; i < choices.size(); ++i) {
    json::object entry{{"index", i}, {"text", plan_->choices[i].echo + TextOf(choices[i])}};
    entry["logprobs"] = Logprobs(i, choices[i].tokens);
    entry["finish_reason"] = ends[i].reason;
    list.push_back(std::move(entry));
  }
  json::object whole = Envelope();
  whole["choices"] = std::move(list);
  whole["usage"] = UsageJson(usage);
  whole["timings"] = TimingsJson(ends[0].timings);
  return ToJson(whole);
}

}  // namespace strata::gateway
