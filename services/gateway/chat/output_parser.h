// Splits what a model says into reasoning, content and tool calls.
//
// One state machine over bytes. A marker ("<think>", "<tool_call>", ...) that the vocabulary has as
// one token is recognised by that token alone, so a model can write about markers in plain letters;
// other markers are recognised as text. Only what may still become a marker is held back. The
// result is the same however the bytes are cut, and nothing a model says is an error: a broken tool
// call comes out as content.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::gateway {

enum class Marker : uint8_t { kThinkOpen, kThinkClose, kCallOpen, kCallClose };
inline constexpr int kMarkers = 4;
std::string_view MarkerText(Marker marker);

struct ParserOptions {
  bool reasoning = false;            // recognise <think> ... </think>
  bool starts_in_reasoning = false;  // the prompt ends with <think>
  bool tools = false;                // recognise <tool_call> ... </tool_call>
  bool is_token[kMarkers] = {};      // the marker is one token: its text does not count
  // The prompt ends inside a call whose text so far is this (a forced tool choice).
  bool starts_in_call = false;
  std::string call_prefix;
};

struct OutputPart {
  enum class Kind { kReasoning, kContent, kToolCall };
  Kind kind;
  std::string text;       // kReasoning, kContent
  std::string name;       // kToolCall
  std::string arguments;  // kToolCall: a JSON object
  std::string id;         // kToolCall: given by who passes it on
};

class OutputParser {
 public:
  explicit OutputParser(ParserOptions options);

  void PushText(std::string_view bytes, std::vector<OutputPart>* out);
  void PushMarker(Marker marker, std::vector<OutputPart>* out);
  // The end. `cut_off`: the budget ran out; an unfinished tool call is then dropped rather than
  // shown.
  void Finish(bool cut_off, std::vector<OutputPart>* out);

  // Bytes pushed but not yet passed on.
  size_t held() const { return pending_.size() + space_.size() + call_.size(); }
  bool in_reasoning() const { return state_ == State::kReasoning; }
  bool in_call() const { return state_ == State::kCall; }

 private:
  enum class State { kStart, kReasoning, kContent, kCall };

  // The marker that ends or interrupts the present state when it comes as text; false if none.
  bool TextMarker(Marker* marker) const;
  void Enter(Marker marker, std::vector<OutputPart>* out);
  void Emit(std::string_view bytes, std::vector<OutputPart>* out);
  void CloseCall(bool closed, bool cut_off, std::vector<OutputPart>* out);
  static void Append(OutputPart::Kind kind, std::string_view text, std::vector<OutputPart>* out);

  const ParserOptions options_;
  State state_ = State::kStart;
  std::string pending_;      // may be the beginning of a marker
  std::string space_;        // white space that is shown only if text follows
  std::string call_;         // text of the open tool call
  bool trim_start_ = false;  // white space at the beginning of this section is framing
};

// Reads {"name": ..., "arguments": {...}} ("parameters" is accepted too). Arguments keep the text
// the model wrote: a client sends them back, and the same text means the same stored prefix.
bool ParseToolCall(std::string_view body, std::string* name, std::string* arguments);

}  // namespace strata::gateway
