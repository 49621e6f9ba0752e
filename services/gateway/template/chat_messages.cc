#include "services/gateway/template/chat_messages.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "common/base/status.h"
#include "services/gateway/template/tool_calls.h"

namespace strata::gateway {
namespace {

namespace json = boost::json;

absl::Status Bad(std::string_view where, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(A(where), ": ", A(what)));
}

std::string_view View(const json::string& s) { return {s.data(), s.size()}; }

absl::StatusOr<std::string> Role(const json::object& message, std::string_view where) {
  const json::value* role = message.if_contains("role");
  if (role == nullptr || !role->is_string()) return Bad(where, "'role' must be a string");
  const std::string_view name = View(role->get_string());
  if (name == "developer") return std::string("system");
  if (name == "function") return std::string("tool");
  for (const std::string_view known : {"system", "user", "assistant", "tool"}) {
    if (name == known) return std::string(name);
  }
  return Bad(where, absl::StrCat("unknown role '", A(name),
                                 "'; known: system, developer, user, assistant, tool"));
}

struct Content {
  std::string text;
  std::string thinking;
};

// The text of one content part, into `content`.
absl::Status AddPart(const json::value& value, std::string_view where, Content& content,
                     bool& first) {
  const auto add = [&](std::string_view text) {
    if (!std::exchange(first, false)) content.text += "\n";
    content.text += text;
  };
  if (const json::string* text = value.if_string()) {
    add(View(*text));
    return absl::OkStatus();
  }
  const json::object* part = value.if_object();
  if (part == nullptr) return Bad(where, "a content part must be an object");
  const json::value* type_value = part->if_contains("type");
  const std::string type = type_value != nullptr && type_value->is_string()
                               ? std::string(View(type_value->get_string()))
                               : "text";
  const bool is_text = type == "text" || type == "input_text" || type == "output_text";
  if (!is_text && type != "refusal" && type != "thinking") {
    return Bad(where, absl::StrCat("parts of type '", type,
                                   "' are not supported: this model takes text only"));
  }
  const json::value* text = part->if_contains(is_text ? "text" : type);
  if (text == nullptr || !text->is_string()) {
    return Bad(where, absl::StrCat("'", is_text ? "text" : type, "' must be a string"));
  }
  if (type == "thinking") {
    content.thinking += View(text->get_string());
  } else {
    add(View(text->get_string()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Content> ReadContent(const json::object& message, std::string_view where) {
  Content content;
  const json::value* value = message.if_contains("content");
  if (value == nullptr || value->is_null()) return content;
  if (const json::string* text = value->if_string()) {
    content.text = View(*text);
    return content;
  }
  const json::array* parts = value->if_array();
  if (parts == nullptr) return Bad(where, "'content' must be a string, a list of parts or null");
  bool first = true;
  for (size_t i = 0; i < parts->size(); ++i) {
    const std::string part = absl::StrCat(A(where), ".content[", i, "]");
    STRATA_RETURN_IF_ERROR(AddPart((*parts)[i], part, content, first));
  }
  return content;
}

bool HasCalls(const json::object& message) { return message.contains("tool_calls"); }

std::string TextOf(const json::object& message) {
  return std::string(View(message.at("content").get_string()));
}

bool IsRole(const json::object& message, std::string_view role) {
  return View(message.at("role").get_string()) == role;
}

// Puts `text` in front of the message's content, a blank line between.
void Prepend(json::object& message, const std::string& text) {
  const std::string old = TextOf(message);
  message["content"] = old.empty() ? text : text + "\n\n" + old;
}

// Rules 1 to 3 for one message; content is still a plain string.
absl::StatusOr<json::object> NormalizeOne(const json::value& value, std::string_view where) {
  const json::object* message = value.if_object();
  if (message == nullptr) return Bad(where, "a message must be an object");
  STRATA_ASSIGN_OR_RETURN(const std::string role, Role(*message, where));
  STRATA_ASSIGN_OR_RETURN(const Content content, ReadContent(*message, where));
  json::object out = *message;
  out["role"] = role;
  out["content"] = content.text;
  if (!content.thinking.empty() && !out.contains("reasoning_content")) {
    out["reasoning_content"] = content.thinking;
  }
  STRATA_RETURN_IF_ERROR(NormalizeToolCalls(where, out));
  return out;
}

// Rule 5.
std::vector<json::object> PlaceSystemMessages(std::vector<json::object> messages,
                                              const TemplateCaps& caps) {
  std::string leading;
  size_t first = 0;
  for (; first < messages.size() && IsRole(messages[first], "system"); ++first) {
    const std::string text = TextOf(messages[first]);
    if (!leading.empty() && !text.empty()) leading += "\n\n";
    leading += text;
  }
  std::vector<json::object> out;
  if (first > 0 && caps.system_role) {
    out.push_back(std::move(messages[0]));
    out.back()["content"] = leading;
    leading.clear();
  }
  for (size_t i = first; i < messages.size(); ++i) {
    json::object& message = messages[i];
    if (IsRole(message, "system") && !caps.system_anywhere) {
      message["role"] = "user";
      message["content"] = "[system]\n" + TextOf(message);
    }
    if (!leading.empty() && IsRole(message, "user")) {
      Prepend(message, std::exchange(leading, {}));
    }
    out.push_back(std::move(message));
  }
  if (!leading.empty()) {  // no user message to carry it
    out.insert(out.begin(), json::object{{"role", "user"}, {"content", leading}});
  }
  return out;
}

// Rule 6.
std::vector<json::object> MergeNeighbours(std::vector<json::object> messages) {
  std::vector<json::object> out;
  for (json::object& message : messages) {
    const bool mergeable = (IsRole(message, "user") || IsRole(message, "assistant")) &&
                           !HasCalls(message) && !out.empty() && !HasCalls(out.back()) &&
                           out.back().at("role") == message.at("role");
    if (mergeable) {
      Prepend(message, TextOf(out.back()));
      out.back() = std::move(message);
    } else {
      out.push_back(std::move(message));
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<json::array> NormalizeMessages(const json::array& messages,
                                              const TemplateCaps& caps) {
  std::vector<json::object> list;
  for (size_t i = 0; i < messages.size(); ++i) {
    STRATA_ASSIGN_OR_RETURN(json::object message,
                            NormalizeOne(messages[i], absl::StrCat("messages[", i, "]")));
    list.push_back(std::move(message));
  }
  AssignCallIds(list, caps.short_call_ids);
  list = PlaceSystemMessages(std::move(list), caps);
  if (caps.alternating_roles) list = MergeNeighbours(std::move(list));
  json::array out;
  for (json::object& message : list) {
    if (HasCalls(message)) {
      if (caps.string_arguments) StringifyArguments(message);
      if (caps.null_call_content && TextOf(message).empty()) message["content"] = nullptr;
    }
    if (caps.typed_content && message.at("content").is_string()) {
      json::object part{{"type", "text"}, {"text", message.at("content")}};
      message["content"] = json::array{std::move(part)};
    }
    out.push_back(std::move(message));
  }
  return out;
}

}  // namespace strata::gateway
