// Code points in UTF-8 strings, with Python's idea of whitespace, case and printability, because
// Jinja's string filters are defined by Python's str. A byte that is not part of valid UTF-8 counts
// as one character (as the template source may hold any bytes); it is never changed or dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/utf8.h"

namespace strata::gateway::jinja {

struct CodePoint {
  char32_t value;  // 0xFFFFFFFF for a byte that is not UTF-8
  size_t length;   // bytes, >= 1
};

inline constexpr char32_t kInvalidCodePoint = 0xFFFFFFFF;

// The character that starts at s[position]; position < s.size().
CodePoint DecodeAt(std::string_view s, size_t position);
// Start of the character that ends at s[end - 1]; end > 0.
size_t PreviousStart(std::string_view s, size_t end);

size_t CountCodePoints(std::string_view s);
// Byte position of character number `index`; s.size() when index is past the end.
size_t ByteOffset(std::string_view s, size_t index);

bool IsSpace(char32_t c);      // str.isspace: ASCII separators and Unicode's Z* and bidi B/S/WS
bool IsPrintable(char32_t c);  // what repr() leaves alone; unassigned code points count as such
bool IsAlpha(char32_t c);
bool IsDigit(char32_t c);
bool IsAlnum(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
// Case mapping may lengthen ("ß" -> "SS").
std::string ToUpper(char32_t c);
std::string ToLower(char32_t c);

bool IsLineBreak(char32_t c);  // str.splitlines, "\r\n" being one break

}  // namespace strata::gateway::jinja
