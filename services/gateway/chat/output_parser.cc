#include "services/gateway/chat/output_parser.h"

#include <utility>

#include <boost/json/object.hpp>

#include "services/gateway/chat/stop_matcher.h"
#include "services/gateway/json/json.h"

namespace strata::gateway {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Whether the text ends inside a JSON string.
bool EndsInsideString(std::string_view text) {
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (inside && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      inside = !inside;
    }
  }
  return inside;
}

std::string_view Text(const boost::json::string& s) { return {s.data(), s.size()}; }

}  // namespace

std::string_view MarkerText(Marker marker) {
  switch (marker) {
    case Marker::kThinkOpen:
      return "<think>";
    case Marker::kThinkClose:
      return "</think>";
    case Marker::kCallOpen:
      return "<tool_call>";
    case Marker::kCallClose:
      return "</tool_call>";
  }
  return {};
}

OutputParser::OutputParser(ParserOptions options) : options_(std::move(options)) {
  if (options_.starts_in_call) {
    state_ = State::kCall;
    call_ = options_.call_prefix;
  } else if (options_.starts_in_reasoning) {
    state_ = State::kReasoning;
    trim_start_ = true;
  } else if (!options_.reasoning) {
    state_ = State::kContent;
  }
}

bool OutputParser::TextMarker(Marker* marker) const {
  switch (state_) {
    case State::kStart:
      *marker = Marker::kThinkOpen;
      break;
    case State::kReasoning:
      *marker = Marker::kThinkClose;
      break;
    case State::kContent:
      if (!options_.tools) return false;
      *marker = Marker::kCallOpen;
      break;
    case State::kCall:
      *marker = Marker::kCallClose;
      break;
  }
  return !options_.is_token[static_cast<int>(*marker)];
}

void OutputParser::PushText(std::string_view bytes, std::vector<OutputPart>* out) {
  pending_.append(bytes);
  while (!pending_.empty()) {
    if (state_ == State::kStart) {
      // Reasoning may only open the answer: before it nothing but white space.
      size_t i = 0;
      while (i < pending_.size() && IsSpace(pending_[i])) ++i;
      const std::string_view rest = std::string_view(pending_).substr(i);
      const std::string_view open = MarkerText(Marker::kThinkOpen);
      Marker ignored;
      const bool as_text = TextMarker(&ignored);
      if (rest.empty() || (as_text && rest.size() < open.size() && open.starts_with(rest))) return;
      if (as_text && rest.starts_with(open)) {
        pending_.erase(0, i + open.size());
        Enter(Marker::kThinkOpen, out);
      } else {
        state_ = State::kContent;
      }
      continue;
    }
    Marker marker;
    if (!TextMarker(&marker)) {
      Emit(std::exchange(pending_, {}), out);
      return;
    }
    const std::string_view text = MarkerText(marker);
    const size_t found = pending_.find(text);
    if (found == std::string::npos) {
      const size_t keep = PartialSuffix(pending_, text);
      const std::string ready = pending_.substr(0, pending_.size() - keep);
      pending_.erase(0, ready.size());
      Emit(ready, out);
      return;
    }
    const std::string before = pending_.substr(0, found);
    pending_.erase(0, found + text.size());
    Emit(before, out);
    // A closing mark inside an argument string is part of the string.
    if (state_ == State::kCall && EndsInsideString(call_)) {
      call_.append(text);
    } else {
      Enter(marker, out);
    }
  }
}

void OutputParser::PushMarker(Marker marker, std::vector<OutputPart>* out) {
  // Held text cannot become a marker any more.
  const std::string held = std::exchange(pending_, {});
  bool applies = false;
  switch (marker) {
    case Marker::kThinkOpen:
      applies = options_.reasoning && (state_ == State::kStart || state_ == State::kContent);
      break;
    case Marker::kThinkClose:
      applies = state_ == State::kReasoning;
      break;
    case Marker::kCallOpen:
      // Also out of reasoning: models forget to close it before they call.
      applies = options_.tools && state_ != State::kCall;
      break;
    case Marker::kCallClose:
      applies = state_ == State::kCall;
      break;
  }
  if (state_ == State::kStart) {
    // White space before an opening mark is framing.
    if (!(applies && marker == Marker::kThinkOpen))
      state_ = State::kContent;
    else if (held.find_first_not_of(" \n\r\t") == std::string::npos) {
      Enter(marker, out);
      return;
    }
  }
  Emit(held, out);
  if (applies) {
    Enter(marker, out);
  } else {
    Emit(MarkerText(marker), out);
  }
}

void OutputParser::Enter(Marker marker, std::vector<OutputPart>* out) {
  space_.clear();
  switch (marker) {
    case Marker::kThinkOpen:
      state_ = State::kReasoning;
      trim_start_ = true;
      break;
    case Marker::kThinkClose:
      state_ = State::kContent;
      trim_start_ = true;
      break;
    case Marker::kCallOpen:
      state_ = State::kCall;
      call_.clear();
      break;
    case Marker::kCallClose:
      CloseCall(true, false, out);
      state_ = State::kContent;
      trim_start_ = true;
      break;
  }
}

void OutputParser::Emit(std::string_view bytes, std::vector<OutputPart>* out) {
  if (bytes.empty()) return;
  if (state_ == State::kCall) {
    call_.append(bytes);
    return;
  }
  if (trim_start_) {
    while (!bytes.empty() && IsSpace(bytes.front())) bytes.remove_prefix(1);
    if (bytes.empty()) return;
    trim_start_ = false;
  }
  const bool reasoning = state_ == State::kReasoning;
  std::string text = std::exchange(space_, {});
  text.append(bytes);
  // White space before "</think>" or "<tool_call>" is framing, elsewhere it is text.
  if (reasoning || options_.tools) {
    size_t end = text.size();
    while (end > 0 && IsSpace(text[end - 1])) --end;
    space_ = text.substr(end);
    text.resize(end);
  }
  Append(reasoning ? OutputPart::Kind::kReasoning : OutputPart::Kind::kContent, text, out);
}

void OutputParser::CloseCall(bool closed, bool cut_off, std::vector<OutputPart>* out) {
  const std::string body = std::exchange(call_, {});
  OutputPart part{OutputPart::Kind::kToolCall, {}, {}, {}};
  if (ParseToolCall(body, &part.name, &part.arguments)) {
    out->push_back(std::move(part));
    return;
  }
  if (cut_off) return;
  std::string text(options_.starts_in_call ? "" : MarkerText(Marker::kCallOpen));
  text += body;
  if (closed) text += MarkerText(Marker::kCallClose);
  Append(OutputPart::Kind::kContent, text, out);
}

void OutputParser::Finish(bool cut_off, std::vector<OutputPart>* out) {
  if (state_ == State::kStart) state_ = State::kContent;
  Emit(std::exchange(pending_, {}), out);
  if (state_ == State::kCall) {
    CloseCall(false, cut_off, out);
  } else if (state_ == State::kContent) {
    Append(OutputPart::Kind::kContent, std::exchange(space_, {}), out);
  }
  space_.clear();
  state_ = State::kContent;
}

void OutputParser::Append(OutputPart::Kind kind, std::string_view text,
                          std::vector<OutputPart>* out) {
  if (text.empty()) return;
  if (!out->empty() && out->back().kind == kind) {
    out->back().text.append(text);
  } else {
    out->push_back({kind, std::string(text), {}, {}});
  }
}

bool ParseToolCall(std::string_view body, std::string* name, std::string* arguments) {
  const auto parsed = ParseJson(body);
  if (!parsed.ok() || !parsed->is_object()) return false;
  const boost::json::object& call = parsed->get_object();
  const boost::json::value* called = call.if_contains("name");
  if (called == nullptr || !called->is_string() || called->get_string().empty()) return false;
  const boost::json::value* given = call.if_contains("arguments");
  const std::string_view key = given != nullptr ? "arguments" : "parameters";
  if (given == nullptr) given = call.if_contains("parameters");
  if (given == nullptr || given->is_null()) {
    *arguments = "{}";
  } else if (given->is_object()) {
    *arguments = std::string(RawMember(body, key));
  } else if (given->is_string()) {  // an object in a string
    const std::string_view text = Text(given->get_string());
    const auto inner = ParseJson(text.empty() ? "{}" : text);
    if (!inner.ok() || !inner->is_object()) return false;
    *arguments = text.empty() ? "{}" : std::string(text);
  } else {
    return false;
  }
  *name = std::string(Text(called->get_string()));
  return true;
}

}  // namespace strata::gateway
