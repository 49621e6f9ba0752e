#include "services/gateway/api/tokens.h"

#include <boost/json/array.hpp>

#include "common/base/status.h"
#include "services/gateway/api/chat_request.h"
#include "services/gateway/json/json.h"
#include "services/gateway/json/utf8.h"

namespace strata::gateway {
namespace {

namespace json = boost::json;

constexpr FieldSpec kTokenizeFields[] = {
    {"content", kString},   {"prompt", kString},      {"messages", kArray},
    {"add_special", kBool}, {"parse_special", kBool}, {"add_special_tokens", kBool},
    {"with_pieces", kBool},
};
constexpr FieldSpec kDetokenizeFields[] = {{"tokens", kArray}};

Response Json(const json::object& object) {
  Response response;
  response.body = ToJson(object);
  return response;
}

json::value PieceJson(std::string_view piece) {
  if (ToValidUtf8(piece) == piece) return json::value(std::string(piece));
  json::array bytes;
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

}  // namespace

std::span<const FieldSpec> TokenizeFields() { return kTokenizeFields; }
std::span<const FieldSpec> DetokenizeFields() { return kDetokenizeFields; }

Response Tokenize(const ApiContext& context, const Request& request) {
  const Body body = ParseBody(request.body);
  if (body.error) return ErrorResponse(*body.error);
  const json::object& object = body.object;
  if (const auto error = CheckFields(object, kTokenizeFields)) return ErrorResponse(*error);

  std::vector<TextPart> parts;
  bool with_bos = GetBool(object, "add_special", GetBool(object, "add_special_tokens", false));
  if (Field(object, "messages") != nullptr) {
    PromptResult prompt = RenderPrompt(context, object);
    if (prompt.error) return ErrorResponse(*prompt.error);
    parts = std::move(prompt.parts);
    with_bos = true;
  } else {
    const std::string_view name = Field(object, "content") != nullptr ? "content" : "prompt";
    if (Field(object, name) == nullptr) {
      return ErrorResponse(BadField("content", "'content' is missing."));
    }
    parts.push_back({GetString(object, name), GetBool(object, "parse_special", true)});
  }
  const std::vector<uint32_t> ids = context.model->Encode(parts, with_bos);
  json::array tokens;
  for (const uint32_t id : ids) {
    if (!GetBool(object, "with_pieces", false)) {
      tokens.emplace_back(id);
      continue;
    }
    json::object entry{{"id", id}};
    entry["piece"] = PieceJson(context.model->Piece(id));
    tokens.push_back(std::move(entry));
  }
  json::object result;
  result["tokens"] = std::move(tokens);
  result["count"] = ids.size();
  const auto description = context.engine->description();
  if (description != nullptr) result["max_model_len"] = description->context_length();
  return Json(result);
}

Response Detokenize(const ApiContext& context, const Request& request) {
  const Body body = ParseBody(request.body);
  if (body.error) return ErrorResponse(*body.error);
  if (const auto error = CheckFields(body.object, kDetokenizeFields)) return ErrorResponse(*error);
  const json::value* tokens = Field(body.object, "tokens");
  if (tokens == nullptr) return ErrorResponse(BadField("tokens", "'tokens' is missing."));
  std::string text;
  for (const json::value& id : tokens->get_array()) {
    if (!IsInteger(id) || ToInteger(id) < 0 || ToInteger(id) >= context.model->vocab_size()) {
      return ErrorResponse(BadField("tokens", absl::StrCat("'tokens' must hold integers from 0 to ",
                                                           context.model->vocab_size() - 1, ".")));
    }
    text += context.model->Piece(static_cast<uint32_t>(ToInteger(id)));
  }
  json::object result;
  result["content"] = ToValidUtf8(text);
  return Json(result);
}

Response ApplyTemplate(const ApiContext& context, const Request& request) {
  const Body body = ParseBody(request.body);
  if (body.error) return ErrorResponse(*body.error);
  PromptResult prompt = RenderPrompt(context, body.object);
  if (prompt.error) return ErrorResponse(*prompt.error);
  std::string text;
  for (const TextPart& part : prompt.parts) text += part.text;
  json::object result;
  result["prompt"] = text;
  return Json(result);
}

}  // namespace strata::gateway
