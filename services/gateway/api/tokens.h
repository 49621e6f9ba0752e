// /tokenize, /detokenize, /apply-template: what happens to text before and after the model, for
// people who look for the cause of a cache miss.
#pragma once

#include <span>

#include "services/gateway/api/context.h"
#include "services/gateway/api/fields.h"
#include "services/gateway/http/message.h"

namespace strata::gateway {

std::span<const FieldSpec> TokenizeFields();
std::span<const FieldSpec> DetokenizeFields();

// {content | prompt | messages, add_special, parse_special, with_pieces} -> {tokens, count, ...}
Response Tokenize(const ApiContext& context, const Request& request);
// {tokens} -> {content}
Response Detokenize(const ApiContext& context, const Request& request);
// {messages, tools, ...} -> {prompt}
Response ApplyTemplate(const ApiContext& context, const Request& request);

}  // namespace strata::gateway
