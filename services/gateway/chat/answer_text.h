// From tokens to what a client sees, for one answer: bytes, channels, whole characters, stop
// strings, and log-probabilities that are shown together with the text they belong to.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "services/gateway/chat/output_parser.h"
#include "services/gateway/chat/stop_matcher.h"
#include "services/gateway/json/utf8.h"
#include "services/gateway/model/model.h"
#include "strata/v1/compute.pb.h"

namespace strata::gateway {

// The marker tokens of a vocabulary.
struct MarkerTokens {
  static MarkerTokens Of(const Model& model);
  std::optional<uint32_t> id[kMarkers];
};

struct AnswerDelta {
  std::vector<OutputPart> parts;
  std::vector<v1::GeneratedToken> tokens;  // with log-probabilities
  bool empty() const { return parts.empty() && tokens.empty(); }
};

class AnswerText {
 public:
  // `options.is_token` is filled in from the vocabulary. The model must outlive this object.
  AnswerText(const Model* model, ParserOptions options, std::vector<std::string> stops,
             bool keep_tokens);

  void Push(const v1::GeneratedToken& token, AnswerDelta* delta);
  // No more tokens. `cut_off`: not by the model's own decision.
  void Finish(bool cut_off, AnswerDelta* delta);

  // A stop string was found: what follows is not part of the answer.
  bool stopped() const { return stop_.stopped(); }
  bool in_reasoning() const { return parser_.in_reasoning(); }
  uint32_t tool_calls() const { return tool_calls_; }
  uint32_t reasoning_tokens() const { return reasoning_tokens_; }
  // The end came within a tool call that could not be completed.
  bool ended_in_call() const { return ended_in_call_; }

 private:
  struct HeldToken {
    v1::GeneratedToken token;
    uint64_t begin;
    uint64_t end;
  };
  void Take(std::vector<OutputPart> parts, AnswerDelta* delta);
  void Show(OutputPart::Kind kind, std::string text, AnswerDelta* delta);
  void FlushGate(AnswerDelta* delta);
  void ReleaseTokens(uint64_t up_to, AnswerDelta* delta);

  const Model* const model_;
  const MarkerTokens markers_;
  OutputParser parser_;
  StopMatcher stop_;
  Utf8Gate gate_;
  OutputPart::Kind gate_kind_ = OutputPart::Kind::kContent;
  const bool keep_tokens_;
  std::deque<HeldToken> tokens_;
  uint64_t bytes_ = 0;  // of all tokens so far
  uint32_t tool_calls_ = 0;
  uint32_t reasoning_tokens_ = 0;
  bool ended_in_call_ = false;
};

}  // namespace strata::gateway
