// POST /v1/chat/completions: from JSON to an AnswerPlan.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "services/gateway/api/answer.h"
#include "services/gateway/api/fields.h"

namespace strata::gateway {

// All fields that are checked by type and range.
std::span<const FieldSpec> ChatFields();

struct ChatRequest {
  AnswerPlan plan;
  std::string model;  // as asked for; echoed in the answer
};

// Reads the body, renders the template and tokenises. Takes milliseconds for long conversations:
// call it on the work pool.
struct ChatResult {
  ChatRequest request;
  std::optional<ApiError> error;
};
ChatResult ReadChatRequest(const ApiContext& context, std::string_view body,
                           const std::string& tenant);

// The rendered prompt of a chat body, for /apply-template and /tokenize.
struct PromptResult {
  std::vector<TextPart> parts;
  std::optional<ApiError> error;
};
PromptResult RenderPrompt(const ApiContext& context, const boost::json::object& body);

}  // namespace strata::gateway
