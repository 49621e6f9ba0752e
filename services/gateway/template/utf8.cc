#include "services/gateway/template/utf8.h"

#include <clocale>
#include <cwctype>

namespace strata::gateway::jinja {
namespace {

// glibc's built-in UTF-8 locale: its character classes come from Unicode and need no locale files.
locale_t UnicodeLocale() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

bool InClass(char32_t c, int (*test)(wint_t, locale_t)) {
  const locale_t locale = UnicodeLocale();
  return c <= 0x10FFFF && locale != nullptr && test(static_cast<wint_t>(c), locale) != 0;
}

bool IsContinuation(std::string_view s, size_t position) {
  return position < s.size() && (static_cast<unsigned char>(s[position]) & 0xC0) == 0x80;
}

}  // namespace

CodePoint DecodeAt(std::string_view s, size_t position) {
  const unsigned char lead = static_cast<unsigned char>(s[position]);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return {kInvalidCodePoint, 1};
  char32_t value = lead & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if (!IsContinuation(s, position + i)) return {kInvalidCodePoint, 1};
    value = value << 6 | (static_cast<unsigned char>(s[position + i]) & 0x3F);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (overlong || surrogate || value > 0x10FFFF) return {kInvalidCodePoint, 1};
  return {value, length};
}

size_t PreviousStart(std::string_view s, size_t end) {
  for (size_t back = 1; back <= 4 && back <= end; ++back) {
    const size_t start = end - back;
    if (IsContinuation(s, start)) continue;
    return DecodeAt(s, start).length == back ? start : end - 1;
  }
  return end - 1;
}

size_t CountCodePoints(std::string_view s) {
  size_t count = 0;
  for (size_t i = 0; i < s.size(); i += DecodeAt(s, i).length) ++count;
  return count;
}

size_t ByteOffset(std::string_view s, size_t index) {
  size_t i = 0;
  while (index-- > 0 && i < s.size()) i += DecodeAt(s, i).length;
  return i;
}

bool IsSpace(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsPrintable(char32_t c) {
  if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD || c > 0x10FFFF) return false;
  if (c > 0x20 && IsSpace(c)) return false;
  const bool format = (c >= 0x600 && c <= 0x605) || c == 0x61C || c == 0x6DD || c == 0x70F ||
                      c == 0x180E || (c >= 0x200B && c <= 0x200F) || (c >= 0x202A && c <= 0x202E) ||
                      (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) ||
                      (c >= 0xE0000 && c <= 0xE007F);
  const bool private_use = (c >= 0xE000 && c <= 0xF8FF) || c >= 0xF0000;
  return !format && !private_use;
}

bool IsAlpha(char32_t c) { return InClass(c, iswalpha_l) && !IsDigit(c); }
bool IsDigit(char32_t c) {
  return (c >= '0' && c <= '9') || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x660 && c <= 0x669) || (c >= 0x6F0 && c <= 0x6F9) || (c >= 0x966 && c <= 0x96F) ||
         (c >= 0xFF10 && c <= 0xFF19);
}
bool IsAlnum(char32_t c) { return InClass(c, iswalpha_l) || IsDigit(c); }
bool IsUpper(char32_t c) { return InClass(c, iswupper_l); }
bool IsLower(char32_t c) { return InClass(c, iswlower_l) || c == 0xDF; }

std::string ToUpper(char32_t c) {
  std::string out;
  if (c == 0xDF) return "SS";
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else {
    const locale_t locale = UnicodeLocale();
    AppendUtf8(locale == nullptr ? c : towupper_l(static_cast<wint_t>(c), locale), &out);
  }
  return out;
}

std::string ToLower(char32_t c) {
  std::string out;
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else {
    const locale_t locale = UnicodeLocale();
    AppendUtf8(locale == nullptr ? c : towlower_l(static_cast<wint_t>(c), locale), &out);
  }
  return out;
}

bool IsLineBreak(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace strata::gateway::jinja
