// Writing a character in UTF-8. Reading is not here: what invalid bytes mean differs between a
// tokenizer, Python's strings and a stream of answers.
#pragma once

#include <string>

namespace strata {

// Appends the one to four bytes of code point `c`, which is at most U+10FFFF; surrogates are
// written as they are.
inline void AppendUtf8(char32_t c, std::string* out) {
  const auto push = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xC0 | c >> 6);
    push(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    push(0xE0 | c >> 12);
    push(0x80 | (c >> 6 & 0x3F));
    push(0x80 | (c & 0x3F));
  } else {
    push(0xF0 | c >> 18);
    push(0x80 | (c >> 12 & 0x3F));
    push(0x80 | (c >> 6 & 0x3F));
    push(0x80 | (c & 0x3F));
  }
}

}  // namespace strata
