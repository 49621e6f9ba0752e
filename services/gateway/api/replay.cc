#include "services/gateway/api/replay.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "common/base/status.h"
#include "services/gateway/api/fields.h"
#include "services/gateway/chat/output_parser.h"
#include "services/gateway/http/request_id.h"
#include "services/gateway/json/json.h"

namespace strata::gateway {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

// For all look-ups of one request together: an agent's history has hundreds of calls.
constexpr std::chrono::milliseconds kPatience{300};
// Between a call's arguments and its closing marker stand a few brackets.
constexpr size_t kMostBehindArguments = 32;

std::string KeyOf(const std::string& tenant, const std::string& call_id) {
  return absl::StrCat(tenant.size(), ":", tenant, call_id);
}

// A fixed number of names bounds what kvstore has to keep.
std::string SlotOf(const std::string& key) {
  uint64_t hash = 14695981039346656037U;  // FNV-1a: the same in every process
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return absl::StrCat("replay-", hash % ReplayBook::kSlots);
}

std::string Pack(const std::string& key, const Replay& replay) {
  json::array calls;
  for (const Replay::Call& call : replay.calls) {
    calls.push_back(json::array{call.id, call.name, call.arguments});
  }
  const json::object packed{{"key", key},
                            {"content", replay.content},
                            {"calls", std::move(calls)},
                            {"tokens", json::array(replay.tokens.begin(), replay.tokens.end())}};
  return json::serialize(packed);
}

std::optional<Replay> Unpack(const std::string& key, const std::string& text) {
  const absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok() || !value->is_object()) return std::nullopt;
  const json::object& packed = value->get_object();
  const auto is_text = [](const json::value* v) { return v != nullptr && v->is_string(); };
  const json::value* calls = packed.if_contains("calls");
  const json::value* tokens = packed.if_contains("tokens");
  if (!is_text(packed.if_contains("key")) || packed.at("key").get_string() != key ||
      !is_text(packed.if_contains("content")) || calls == nullptr || !calls->is_array() ||
      tokens == nullptr || !tokens->is_array()) {
    return std::nullopt;  // another call's, which took the slot
  }
  Replay replay;
  replay.content = packed.at("content").get_string().c_str();
  for (const json::value& call : calls->get_array()) {
    if (!call.is_array() || call.get_array().size() != 3) return std::nullopt;
    for (const json::value& part : call.get_array()) {
      if (!part.is_string()) return std::nullopt;
    }
    replay.calls.push_back({call.at(0).get_string().c_str(), call.at(1).get_string().c_str(),
                            call.at(2).get_string().c_str()});
  }
  for (const json::value& token : tokens->get_array()) {
    if (!IsInteger(token)) return std::nullopt;
    replay.tokens.push_back(static_cast<uint32_t>(ToInteger(token)));
  }
  return replay;
}

std::string ContentOf(const json::object& message) {
  const json::value* content = message.if_contains("content");
  if (content == nullptr) return {};
  if (content->is_string()) return content->get_string().c_str();
  std::string text;
  if (content->is_array()) {
    for (const json::value& part : content->get_array()) {
      const json::value* own = part.is_object() ? part.get_object().if_contains("text") : nullptr;
      if (own != nullptr && own->is_string()) text += own->get_string().c_str();
    }
  }
  return text;
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \n\r\t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \n\r\t") + 1 - begin);
}

// The parsed arguments, however they are written; null if they are no JSON.
json::value ArgumentsOf(const json::value& arguments) {
  if (!arguments.is_string()) return arguments;
  const json::string& text = arguments.get_string();
  absl::StatusOr<json::value> parsed = ParseJson({text.data(), text.size()});
  return parsed.ok() ? *std::move(parsed) : json::value();
}

// "function" of a call in a client's history; null if it has another shape.
const json::object* FunctionOf(const json::value& call) {
  if (!call.is_object()) return nullptr;
  const json::value* function = call.get_object().if_contains("function");
  return function != nullptr && function->is_object() ? &function->get_object() : nullptr;
}

std::string FirstCallId(const json::value& message) {
  if (!message.is_object()) return {};
  const json::value* calls = message.get_object().if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array() || calls->get_array().empty()) return {};
  const json::value& first = calls->get_array()[0];
  return first.is_object() ? GetString(first.get_object(), "id") : std::string();
}

// A message that is replayed, and the words put into its place to find it in the rendered text.
struct Placed {
  Replay replay;
  std::string content_word;
  std::string arguments_word;
};

// Puts the tokens where the words are. Empty if they are not where they should be.
std::vector<TextPart> PutTokens(const std::vector<TextPart>& rendered,
                                const std::vector<Placed>& placed) {
  std::string text;
  std::vector<size_t> ends;  // of each part in `text`
  ends.reserve(rendered.size());
  for (const TextPart& part : rendered) ends.push_back((text += part.text).size());
  std::vector<TextPart> out;
  size_t at = 0;
  const auto copy_until = [&](size_t end) {
    for (size_t i = 0; i < rendered.size(); ++i) {
      const size_t begin = std::max(at, i == 0 ? 0 : ends[i - 1]);
      const size_t stop = std::min(end, ends[i]);
      if (begin < stop) out.push_back({text.substr(begin, stop - begin), rendered[i].trusted, {}});
    }
  };
  const std::string_view close = MarkerText(Marker::kCallClose);
  for (const Placed& place : placed) {
    const size_t begin = text.find(place.content_word, at);
    const size_t arguments = text.find(place.arguments_word, at);
    if (begin == std::string::npos || arguments == std::string::npos || arguments < begin) {
      return {};
    }
    const size_t behind = arguments + place.arguments_word.size();
    const size_t end = text.find(close, behind);
    if (end == std::string::npos || end - behind > kMostBehindArguments) return {};
    copy_until(begin);
    at = end + close.size();
    out.push_back({text.substr(begin, at - begin), false, place.replay.tokens});
    // A template that says a thing twice cannot be replayed.
    if (text.find(place.content_word, behind) != std::string::npos ||
        text.find(place.arguments_word, behind) != std::string::npos) {
      return {};
    }
  }
  copy_until(text.size());
  return out;
}

}  // namespace

void ReplayBook::Keep(const std::string& key, std::optional<Replay> replay) {
  const std::lock_guard lock(mutex_);
  if (const auto it = by_key_.find(key); it != by_key_.end()) {
    newest_first_.erase(it->second);
    by_key_.erase(it);
  }
  newest_first_.emplace_front(key, std::move(replay));
  by_key_[key] = newest_first_.begin();
  if (newest_first_.size() > kInMemory) {
    by_key_.erase(newest_first_.back().first);
    newest_first_.pop_back();
  }
}

void ReplayBook::Put(const std::string& tenant, Replay replay) {
  if (replay.calls.empty()) return;
  const std::string key = KeyOf(tenant, replay.calls[0].id);
  std::string packed = Pack(key, replay);
  if (packed.size() > kMostBytes) return;
  engine_->Remember(SlotOf(key), std::move(packed));
  Keep(key, std::move(replay));
}

std::optional<Replay> ReplayBook::Get(const std::string& tenant, const std::string& call_id,
                                      bool ask_store) {
  const std::string key = KeyOf(tenant, call_id);
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = by_key_.find(key); it != by_key_.end()) {
      newest_first_.splice(newest_first_.begin(), newest_first_, it->second);
      return it->second->second;
    }
  }
  if (!ask_store) return std::nullopt;
  const absl::StatusOr<std::string> packed = engine_->Recall(SlotOf(key));
  // Who did not answer is asked again next time.
  if (!packed.ok() && !absl::IsNotFound(packed.status())) return std::nullopt;
  std::optional<Replay> replay = packed.ok() ? Unpack(key, *packed) : std::nullopt;
  Keep(key, replay);
  return replay;
}

bool SaysTheSame(const json::object& message, const Replay& replay) {
  if (GetString(message, "role") != "assistant") return false;
  if (Trimmed(ContentOf(message)) != Trimmed(replay.content)) return false;
  const json::value* calls = message.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array() || calls->get_array().size() != replay.calls.size()) {
    return false;
  }
  for (size_t i = 0; i < replay.calls.size(); ++i) {
    const json::value& call = calls->get_array()[i];
    const json::object* function = FunctionOf(call);
    if (function == nullptr) return false;
    const json::value* arguments = function->if_contains("arguments");
    if (GetString(call.get_object(), "id") != replay.calls[i].id ||
        GetString(*function, "name") != replay.calls[i].name || arguments == nullptr) {
      return false;
    }
    const json::value said = ArgumentsOf(json::value(replay.calls[i].arguments));
    if (!said.is_object() || ArgumentsOf(*arguments) != said) return false;
  }
  return true;
}

absl::StatusOr<std::vector<TextPart>> RenderWithReplays(const Model& model, ReplayBook* book,
                                                        const std::string& tenant,
                                                        const json::object& variables) {
  if (book == nullptr) return model.Render(variables);
  json::object changed;
  std::vector<Placed> placed;
  const json::array& messages = variables.at("messages").get_array();
  const Clock::time_point give_up = Clock::now() + kPatience;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string id = FirstCallId(messages[i]);
    if (id.empty()) continue;
    std::optional<Replay> replay = book->Get(tenant, id, Clock::now() < give_up);
    if (!replay || !SaysTheSame(messages[i].get_object(), *replay)) continue;
    if (placed.empty()) changed = variables;
    const std::string word = RandomName(24);
    placed.push_back({*std::move(replay), word + "c", word + "a"});
    json::object& message = changed["messages"].get_array()[i].get_object();
    message["content"] = placed.back().content_word;
    json::object& last = message["tool_calls"].get_array().back().get_object();
    last["function"].get_object()["arguments"] =
        json::serialize(json::object{{"is", placed.back().arguments_word}});
  }
  if (placed.empty()) return model.Render(variables);
  STRATA_ASSIGN_OR_RETURN(const std::vector<TextPart> rendered, model.Render(changed));
  std::vector<TextPart> parts = PutTokens(rendered, placed);
  if (parts.empty()) return model.Render(variables);
  return parts;
}

}  // namespace strata::gateway
