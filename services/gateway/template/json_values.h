// Between JSON and template values.
#pragma once

#include <string>
#include <string_view>

#include <boost/json/value.hpp>

#include "services/gateway/template/runtime.h"
#include "services/gateway/template/value.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::gateway::jinja {

// A copy on the runtime's heap, key order kept. Strings are untrusted unless `trusted`, except one
// kind: the value of a "role" key that is one of the roles every API knows. Templates build control
// tokens out of it ('<|' + role + '|>'), and all a client can do is choose among the known ones.
absl::StatusOr<Value> FromJson(Runtime& runtime, const boost::json::value& json, bool trusted);

struct JsonStyle {
  std::string indent;  // one level; empty and !pretty: everything on one line
  bool pretty = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ascii = false;
  bool sort_keys = false;
};

// Python's json.dumps(value, ensure_ascii=style.ascii, ...).
absl::Status AppendJson(Runtime& runtime, const Value& value, const JsonStyle& style, Text& out);

}  // namespace strata::gateway::jinja
