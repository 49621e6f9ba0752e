#include "common/tokenizer/utf8.h"

namespace strata::tokenizer {
namespace {

uint8_t ByteAt(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

bool IsContinuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Length promised by a leading byte; 0 for a byte that cannot lead.
uint32_t SequenceLength(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC0) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  if (lead < 0xF8) return 4;
  return 0;
}

// Length of a structurally complete sequence (continuation bytes in place, value in range), or 0.
// Overlong forms and surrogates count as complete here.
uint32_t CompleteLength(std::string_view text, size_t position) {
  const uint32_t length = SequenceLength(ByteAt(text, position));
  if (length == 0 || length > text.size() - position) return 0;
  for (uint32_t i = 1; i < length; ++i) {
    if (!IsContinuation(ByteAt(text, position + i))) return 0;
  }
  if (length == 4 && DecodeAt(text, position).value > 0x10FFFF) return 0;
  return length;
}

bool IsOverlong(CodePoint c) {
  return (c.length == 2 && c.value < 0x80) || (c.length == 3 && c.value < 0x800) ||
         (c.length == 4 && c.value < 0x10000);
}

}  // namespace

CodePoint DecodeAt(std::string_view text, size_t position) {
  const uint8_t lead = ByteAt(text, position);
  const auto tail = [&](size_t i) { return ByteAt(text, position + i) & 0x3Fu; };
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1Fu) << 6 | tail(1), 2};
  if (lead < 0xF0) return {(lead & 0x0Fu) << 12 | tail(1) << 6 | tail(2), 3};
  return {(lead & 0x07u) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3), 4};
}

std::optional<std::string> RepairUtf8(std::string_view text) {
  size_t position = 0;
  const auto well_formed_length = [&text](size_t at) -> uint32_t {
    const uint32_t length = CompleteLength(text, at);
    return length > 1 && IsOverlong(DecodeAt(text, at)) ? 0 : length;
  };
  while (position < text.size()) {
    const uint32_t length = well_formed_length(position);
    if (length == 0) break;
    position += length;
  }
  if (position == text.size()) return std::nullopt;
  std::string repaired(text.substr(0, position));
  while (position < text.size()) {
    const uint32_t length = CompleteLength(text, position);
    if (length == 0) {
      repaired += kReplacementCharacter;
      ++position;
    } else {
      AppendUtf8(DecodeAt(text, position).value, &repaired);
      position += length;
    }
  }
  return repaired;
}

Utf8Step StepUtf8(std::string_view text, size_t position) {
  const uint8_t lead = ByteAt(text, position);
  const uint32_t length = SequenceLength(lead);
  if (length == 1) return {1, true, false};
  // C0, C1 and F5..F7 can only start forms that are overlong or out of range.
  if (length == 0 || lead < 0xC2 || lead > 0xF4) return {1, false, false};
  // The second byte decides whether the form is overlong, a surrogate or above U+10FFFF.
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (uint32_t i = 1; i < length; ++i) {
    if (position + i == text.size()) return {i, false, true};
    const uint8_t byte = ByteAt(text, position + i);
    if (byte < low || byte > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true, false};
}

std::string LossyUtf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t position = 0; position < bytes.size();) {
    const Utf8Step step = StepUtf8(bytes, position);
    text += step.valid ? bytes.substr(position, step.length) : kReplacementCharacter;
    position += step.length;
  }
  return text;
}

}  // namespace strata::tokenizer
