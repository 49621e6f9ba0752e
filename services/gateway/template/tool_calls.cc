#include "services/gateway/template/tool_calls.h"

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include "common/base/status.h"
#include "services/gateway/template/json_values.h"
#include "services/gateway/template/runtime.h"

namespace strata::gateway {
namespace {

namespace json = boost::json;

constexpr size_t kShortIdLength = 9;

std::string_view View(const json::string& s) { return {s.data(), s.size()}; }

json::object ArgumentsObject(const json::value* arguments) {
  if (arguments == nullptr || arguments->is_null()) return {};
  if (const json::object* object = arguments->if_object()) return *object;
  if (const json::string* text = arguments->if_string()) {
    if (View(*text).find_first_not_of(" \t\r\n") == std::string_view::npos) return {};
    json::error_code error;
    json::value parsed = json::parse(*text, error);
    if (!error && parsed.is_object()) return std::move(parsed.get_object());
  }
  return {{"arguments", *arguments}};
}

absl::StatusOr<json::object> OneCall(const json::value& value, const std::string& where) {
  const json::object* call = value.if_object();
  if (call == nullptr) return absl::InvalidArgumentError(where + ": a tool call is an object");
  const json::value* nested = call->if_contains("function");
  const json::object* function =
      nested != nullptr && nested->is_object() ? &nested->get_object() : call;
  const json::value* name = function->if_contains("name");
  if (name == nullptr || !name->is_string()) {
    return absl::InvalidArgumentError(where + ".function.name must be a string");
  }
  json::object out;
  const json::value* id = call->if_contains("id");
  out["id"] = id != nullptr && id->is_string() ? *id : json::value(nullptr);
  out["type"] = "function";
  out["function"] = json::object{
      {"name", *name}, {"arguments", ArgumentsObject(function->if_contains("arguments"))}};
  return out;
}

bool NeedsId(const json::object& object, std::string_view key) {
  const json::value* id = object.if_contains(json::string_view(key.data(), key.size()));
  return id == nullptr || !id->is_string() || id->get_string().empty();
}

// Nine letters and digits that depend on nothing but the id (FNV-1a, 64 bits).
std::string ShortId(std::string_view id) {
  constexpr std::string_view kAlphabet =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  bool fits = id.size() == kShortIdLength;
  for (const char c : id) fits = fits && kAlphabet.find(c) != std::string_view::npos;
  if (fits) return std::string(id);
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string out;
  for (size_t i = 0; i < kShortIdLength; ++i) {
    out.push_back(kAlphabet[hash % kAlphabet.size()]);
    hash /= kAlphabet.size();
  }
  return out;
}

void Shorten(json::object& object, const char* key) {
  if (const json::value* id = object.if_contains(key); id != nullptr && id->is_string()) {
    object[key] = ShortId(View(id->get_string()));
  }
}

}  // namespace

absl::Status NormalizeToolCalls(std::string_view where, json::object& message) {
  json::array calls;
  const json::value* given = message.if_contains("tool_calls");
  const json::value* legacy = message.if_contains("function_call");
  if (given != nullptr && !given->is_null()) {
    if (!given->is_array()) {
      return absl::InvalidArgumentError(absl::StrCat(A(where), ".tool_calls must be a list"));
    }
    for (size_t i = 0; i < given->get_array().size(); ++i) {
      STRATA_ASSIGN_OR_RETURN(
          json::object call,
          OneCall(given->get_array()[i], absl::StrCat(A(where), ".tool_calls[", i, "]")));
      calls.push_back(std::move(call));
    }
  } else if (legacy != nullptr && legacy->is_object()) {
    STRATA_ASSIGN_OR_RETURN(json::object call,
                            OneCall(*legacy, absl::StrCat(A(where), ".function_call")));
    calls.push_back(std::move(call));
  }
  message.erase("function_call");
  message.erase("tool_calls");
  const bool assistant = View(message.at("role").get_string()) == "assistant";
  if (assistant && !calls.empty()) message["tool_calls"] = std::move(calls);
  return absl::OkStatus();
}

void AssignCallIds(std::vector<json::object>& messages, bool short_ids) {
  std::deque<std::string> unanswered;
  for (size_t m = 0; m < messages.size(); ++m) {
    json::object& message = messages[m];
    if (json::value* calls = message.if_contains("tool_calls")) {
      unanswered.clear();
      for (size_t i = 0; i < calls->get_array().size(); ++i) {
        json::object& call = calls->get_array()[i].get_object();
        if (NeedsId(call, "id")) call["id"] = absl::StrCat("call_", m, "_", i);
        unanswered.emplace_back(View(call.at("id").get_string()));
        if (short_ids) Shorten(call, "id");
      }
    }
    if (View(message.at("role").get_string()) != "tool") continue;
    if (NeedsId(message, "tool_call_id") && !unanswered.empty()) {
      message["tool_call_id"] = unanswered.front();
    }
    if (!NeedsId(message, "tool_call_id")) {
      std::erase(unanswered, std::string(View(message.at("tool_call_id").get_string())));
    }
    if (short_ids) Shorten(message, "tool_call_id");
  }
}

void StringifyArguments(json::object& message) {
  for (json::value& call : message.at("tool_calls").get_array()) {
    json::object& function = call.get_object().at("function").get_object();
    jinja::Runtime runtime(RenderLimits{}, 0);
    const absl::StatusOr<jinja::Value> value =
        jinja::FromJson(runtime, function.at("arguments"), false);
    jinja::Text text;
    if (value.ok() && jinja::AppendJson(runtime, *value, {}, text).ok()) {
      function["arguments"] = text.bytes();
    }
  }
}

}  // namespace strata::gateway
