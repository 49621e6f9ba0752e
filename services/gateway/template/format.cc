#include "services/gateway/template/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "common/base/status.h"
#include "services/gateway/template/utf8.h"

namespace strata::gateway::jinja {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

std::string HexEscape(char32_t c) {
  const int digits = c > 0xFFFF ? 8 : c > 0xFF ? 4 : 2;
  std::string out = digits == 8 ? "\\U" : digits == 4 ? "\\u" : "\\x";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    out.push_back(kHexDigits[c >> shift & 0xF]);
  }
  return out;
}

// repr(str): single quotes unless that would need escapes and double quotes would not.
void AppendStringRepr(const Text& text, Text& out) {
  const std::string& bytes = text.bytes();
  const bool has_single = bytes.find('\'') != std::string::npos;
  const bool has_double = bytes.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.AppendTrusted({&quote, 1});
  for (size_t i = 0; i < bytes.size();) {
    const CodePoint c = DecodeAt(bytes, i);
    if (c.value == static_cast<char32_t>(quote) || c.value == '\\') {
      out.AppendAs(text, i, "\\");
      out.Append(text, i, i + 1);
    } else if (c.value == '\n') {
      out.AppendAs(text, i, "\\n");
    } else if (c.value == '\r') {
      out.AppendAs(text, i, "\\r");
    } else if (c.value == '\t') {
      out.AppendAs(text, i, "\\t");
    } else if (c.value != kInvalidCodePoint && !IsPrintable(c.value)) {
      out.AppendAs(text, i, HexEscape(c.value));
    } else {
      out.Append(text, i, i + c.length);
    }
    i += c.length;
  }
  out.AppendTrusted({&quote, 1});
}

absl::Status AppendListRepr(Runtime& runtime, const List& list, Text& out, int depth) {
  out.AppendTrusted(list.tuple ? "(" : "[");
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i != 0) out.AppendTrusted(", ");
    STRATA_RETURN_IF_ERROR(AppendRepr(runtime, list.items[i], out, depth + 1));
  }
  if (list.tuple && list.items.size() == 1) out.AppendTrusted(",");
  out.AppendTrusted(list.tuple ? ")" : "]");
  return absl::OkStatus();
}

}  // namespace

size_t FindBytes(std::string_view haystack, std::string_view needle, size_t from) {
  if (from > haystack.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found =
      memmem(haystack.data() + from, haystack.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - haystack.data());
}

std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  char buffer[32];
  // d[.ddd]e[+-]dd with the shortest digits.
  const std::to_chars_result end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view s(buffer, static_cast<size_t>(end.ptr - buffer));
  std::string out;
  if (s.front() == '-') {
    out = "-";
    s.remove_prefix(1);
  }
  const size_t e = s.find('e');
  std::string digits(s.substr(0, e));
  std::erase(digits, '.');
  int exponent = 0;
  const std::string_view exponent_text = s.substr(s[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    const int magnitude = std::abs(exponent);
    out += exponent < 0 ? "e-" : "e+";
    if (magnitude < 10) out += "0";
    return out + std::to_string(magnitude);
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  const size_t point = static_cast<size_t>(exponent) + 1;
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

absl::Status AppendRepr(Runtime& runtime, const Value& value, Text& out, int depth) {
  if (depth > kMaxValueDepth) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot print a value nested deeper than ", kMaxValueDepth, " levels"));
  }
  STRATA_RETURN_IF_ERROR(runtime.Work(1));
  STRATA_RETURN_IF_ERROR(runtime.Fits(out.size()));
  if (value.IsString()) {
    STRATA_RETURN_IF_ERROR(runtime.Scan(value.text().size()));
    AppendStringRepr(value.text(), out);
    return absl::OkStatus();
  }
  if (value.IsList()) return AppendListRepr(runtime, value.list(), out, depth);
  if (value.IsDict()) {
    out.AppendTrusted("{");
    bool first = true;
    for (const Dict::Entry& entry : value.dict().entries()) {
      if (!first) out.AppendTrusted(", ");
      first = false;
      STRATA_RETURN_IF_ERROR(AppendRepr(runtime, entry.key, out, depth + 1));
      out.AppendTrusted(": ");
      STRATA_RETURN_IF_ERROR(AppendRepr(runtime, entry.value, out, depth + 1));
    }
    out.AppendTrusted("}");
    return absl::OkStatus();
  }
  if (value.IsUndefined()) {
    out.AppendTrusted("Undefined");
    return absl::OkStatus();
  }
  return AppendStr(runtime, value, out);
}

absl::Status AppendStr(Runtime& runtime, const Value& value, Text& out) {
  if (value.IsString()) {
    STRATA_RETURN_IF_ERROR(runtime.Fits(out.size() + value.text().size()));
    STRATA_RETURN_IF_ERROR(runtime.Scan(value.text().size()));
    out.Append(value.text());
  } else if (value.IsNone()) {
    out.AppendTrusted("None");
  } else if (value.IsBool()) {
    out.AppendTrusted(value.AsBool() ? "True" : "False");
  } else if (value.IsInt()) {
    out.AppendTrusted(std::to_string(*value.AsInt()));
  } else if (value.IsFloat()) {
    out.AppendTrusted(FormatFloat(value.AsDouble()));
  } else if (value.IsList() || value.IsDict()) {
    return AppendRepr(runtime, value, out);
  } else if (value.IsObject()) {
    out.AppendTrusted(absl::StrCat("<", A(value.TypeName()), ">"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Text> ToStr(Runtime& runtime, const Value& value) {
  Text out;
  STRATA_RETURN_IF_ERROR(AppendStr(runtime, value, out));
  return out;
}

}  // namespace strata::gateway::jinja
