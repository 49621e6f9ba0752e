// UTF-8 as the tokenizer needs it: decoding of text already known to be well formed, the repair
// that makes any bytes well formed before byte-pair encoding, and lossy decoding of generated
// bytes. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/utf8.h"

namespace strata::tokenizer {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

struct CodePoint {
  uint32_t value;
  uint32_t length;  // in bytes, 1 to 4
};

// The code point at text[position]. The text must come from RepairUtf8 (or need no repair).
CodePoint DecodeAt(std::string_view text, size_t position);

// The text as byte-pair encoding sees it, following llama.cpp: each byte that does not belong to a
// complete sequence becomes U+FFFD (one per byte), an overlong form becomes the character it stands
// for, surrogates stay. Sequences above U+10FFFF count as invalid bytes. nullopt: nothing to
// repair.
std::optional<std::string> RepairUtf8(std::string_view text);

// How a lossy decoder (WHATWG, Python's errors="replace") reads the bytes at text[position]:
// a valid character, or the longest prefix of one, which counts as one U+FFFD.
struct Utf8Step {
  uint32_t length;  // bytes consumed, at least 1
  bool valid;       // the bytes are one complete character
  bool truncated;   // more bytes could still complete it (only at the end of the text)
};
Utf8Step StepUtf8(std::string_view text, size_t position);

// The whole text with every invalid part replaced by U+FFFD.
std::string LossyUtf8(std::string_view bytes);

}  // namespace strata::tokenizer
