// Messages as clients send them -> messages as a template needs them.
//
// Clients follow the OpenAI API loosely, templates follow their author's test conversation. The
// rules below are fixed, because whatever they do becomes part of the prompt prefix that caches and
// stored state depend on. In this order:
//
//   1. Roles: "developer" is "system", "function" is "tool"; an unknown role is refused.
//   2. Content: text parts (text, input_text, output_text, refusal) are joined with a line break;
//      "thinking" parts become reasoning_content; null or missing is "". Images, audio and files
//      are refused. For templates that need typed content, the text becomes one part of type
//      "text".
//   3. Tool calls: a legacy function_call becomes a tool call. Arguments become an object: null, ""
//      or missing is {}, text that is not a JSON object is wrapped as {"arguments": text}.
//      Templates that paste arguments as text get text.
//   4. Ids: missing ones are generated from the position ("call_MESSAGE_INDEX"); a result without
//   an
//      id belongs to the next unanswered call. Templates that demand nine characters get nine,
//      derived from the id.
//   5. System messages: those at the start are merged into one (blank line between). Without a
//      system role in the template, they go in front of the first user message. Later ones stay
//      where they are; where the template would refuse or drop them, they become user messages that
//      start with "[system]".
//   6. If the template needs alternating roles, neighbours of one role are merged (blank line
//      between), except assistant messages with tool calls.
#pragma once

#include <boost/json/array.hpp>

#include "services/gateway/template/template_caps.h"

#include "absl/status/statusor.h"

namespace strata::gateway {

// Errors: InvalidArgument naming the message and what is wrong ("messages[2].content[0]: ...").
absl::StatusOr<boost::json::array> NormalizeMessages(const boost::json::array& messages,
                                                     const TemplateCaps& caps);

}  // namespace strata::gateway
