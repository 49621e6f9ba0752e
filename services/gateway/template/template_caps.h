// What a chat template can do, learned by rendering small probe conversations.
//
// Templates differ in ways no metadata tells: some ignore or refuse system messages, some need
// content as a list of typed parts, some insist that user and assistant alternate. Running the
// template is the only reliable way to find out, and costs microseconds.
#pragma once

#include <boost/json/object.hpp>

#include "services/gateway/template/chat_template.h"

namespace strata::gateway {

struct TemplateCaps {
  bool system_role = false;        // a leading system message appears in the prompt
  bool system_anywhere = false;    // so does one in mid conversation
  bool tools = false;              // `tools` appear in the prompt
  bool tool_calls = false;         // calls in the history appear in the prompt, with their results
  bool typed_content = false;      // content must be [{"type": "text", "text": ...}]
  bool alternating_roles = false;  // refuses two user messages in a row
  // How a call in the history must look to appear:
  bool null_call_content = false;  // content null, not ""
  bool string_arguments = false;   // arguments as JSON text, not as an object
  bool short_call_ids = false;     // ids of exactly nine letters or digits

  bool operator==(const TemplateCaps&) const = default;
};

// `tokens`: bos_token, eos_token and whatever other variables every rendering gets.
TemplateCaps ProbeTemplate(const ChatTemplate& chat_template, const boost::json::object& tokens);

}  // namespace strata::gateway
