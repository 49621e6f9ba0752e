// POST /v1/completions, the older API: a plain prompt in, text out.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "services/gateway/api/answer.h"
#include "services/gateway/api/fields.h"

namespace strata::gateway {

std::span<const FieldSpec> CompletionFields();

struct CompletionResult {
  AnswerPlan plan;
  std::string model;
  std::optional<ApiError> error;
};

// Reads the body and tokenises its prompts; for the work pool.
CompletionResult ReadCompletionRequest(const ApiContext& context, std::string_view body);

}  // namespace strata::gateway
