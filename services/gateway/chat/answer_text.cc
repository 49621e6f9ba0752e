#include "services/gateway/chat/answer_text.h"

#include <utility>

namespace strata::gateway {
namespace {

ParserOptions WithTokens(ParserOptions options, const MarkerTokens& markers) {
  for (int i = 0; i < kMarkers; ++i) options.is_token[i] = markers.id[i].has_value();
  return options;
}

}  // namespace

MarkerTokens MarkerTokens::Of(const Model& model) {
  MarkerTokens tokens;
  for (int i = 0; i < kMarkers; ++i) {
    tokens.id[i] = model.FindToken(MarkerText(static_cast<Marker>(i)));
  }
  return tokens;
}

AnswerText::AnswerText(const Model* model, ParserOptions options, std::vector<std::string> stops,
                       bool keep_tokens)
    : model_(model),
      markers_(MarkerTokens::Of(*model)),
      parser_(WithTokens(std::move(options), markers_)),
      stop_(std::move(stops)),
      keep_tokens_(keep_tokens) {}

void AnswerText::Push(const v1::GeneratedToken& token, AnswerDelta* delta) {
  if (stopped()) return;
  const uint32_t id = token.id();
  std::vector<OutputPart> parts;
  const uint64_t begin = bytes_;
  if (parser_.in_reasoning()) ++reasoning_tokens_;
  bool is_marker = false;
  for (int i = 0; i < kMarkers && !is_marker; ++i) {
    if (markers_.id[i] != id) continue;
    is_marker = true;
    bytes_ += MarkerText(static_cast<Marker>(i)).size();
    parser_.PushMarker(static_cast<Marker>(i), &parts);
  }
  if (!is_marker && id < model_->vocab_size() && !model_->IsControl(id)) {
    bytes_ += model_->Piece(id).size();
    parser_.PushText(model_->Piece(id), &parts);
  }
  if (keep_tokens_) tokens_.push_back({token, begin, bytes_});
  Take(std::move(parts), delta);
  if (stopped()) {
    const uint64_t cut = bytes_ - parser_.held() - gate_.held() - stop_.discarded();
    while (!tokens_.empty() && tokens_.back().begin >= cut) tokens_.pop_back();
    ReleaseTokens(bytes_, delta);
  } else {
    ReleaseTokens(bytes_ - parser_.held() - gate_.held() - stop_.held(), delta);
  }
}

void AnswerText::Finish(bool cut_off, AnswerDelta* delta) {
  if (stopped()) return;
  std::vector<OutputPart> parts;
  ended_in_call_ = parser_.in_call();
  const uint32_t calls = tool_calls_;
  parser_.Finish(cut_off, &parts);
  Take(std::move(parts), delta);
  if (!stopped()) {
    FlushGate(delta);
    const std::string rest = stop_.Finish();
    if (!rest.empty()) Show(OutputPart::Kind::kContent, rest, delta);
  }
  if (tool_calls_ > calls) ended_in_call_ = false;
  ReleaseTokens(bytes_, delta);
}

void AnswerText::Take(std::vector<OutputPart> parts, AnswerDelta* delta) {
  for (OutputPart& part : parts) {
    if (stopped()) return;
    if (part.kind != gate_kind_) {
      FlushGate(delta);
      // A stop string cannot go on behind a tool call: what looked like its beginning is text.
      const std::string rest = stop_.stopped() ? std::string() : stop_.Finish();
      if (!rest.empty()) Show(OutputPart::Kind::kContent, rest, delta);
      if (stopped()) return;
      gate_kind_ = part.kind;
    }
    if (part.kind == OutputPart::Kind::kToolCall) {
      ++tool_calls_;
      part.name = ToValidUtf8(part.name);
      part.arguments = ToValidUtf8(part.arguments);
      delta->parts.push_back(std::move(part));
      continue;
    }
    std::string text = gate_.Push(part.text);
    if (part.kind == OutputPart::Kind::kContent) text = stop_.Push(text);
    Show(part.kind, std::move(text), delta);
  }
}

void AnswerText::Show(OutputPart::Kind kind, std::string text, AnswerDelta* delta) {
  if (text.empty()) return;
  if (!delta->parts.empty() && delta->parts.back().kind == kind) {
    delta->parts.back().text += text;
  } else {
    delta->parts.push_back({kind, std::move(text), {}, {}});
  }
}

void AnswerText::FlushGate(AnswerDelta* delta) {
  std::string text = gate_.Flush();
  if (gate_kind_ == OutputPart::Kind::kContent) text = stop_.Push(text);
  Show(gate_kind_, std::move(text), delta);
}

void AnswerText::ReleaseTokens(uint64_t up_to, AnswerDelta* delta) {
  while (!tokens_.empty() && tokens_.front().end <= up_to) {
    delta->tokens.push_back(std::move(tokens_.front().token));
    tokens_.pop_front();
  }
}

}  // namespace strata::gateway
