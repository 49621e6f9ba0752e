// Tool calls in a conversation's history: shape, arguments and ids. Rules 3 and 4 of
// chat_messages.h.
#pragma once

#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "absl/status/status.h"

namespace strata::gateway {

// Gives `message` "tool_calls": [{"id", "type": "function", "function": {"name", "arguments"}}]
// with arguments as an object, or removes the field when there are none. Only assistant messages
// keep it.
absl::Status NormalizeToolCalls(std::string_view where, boost::json::object& message);

// Fills in missing ids of calls and results; with `short_ids`, replaces all by nine characters.
void AssignCallIds(std::vector<boost::json::object>& messages, bool short_ids);

// Arguments as JSON text, as Python's json.dumps writes it.
void StringifyArguments(boost::json::object& message);

}  // namespace strata::gateway
