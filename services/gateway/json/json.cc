#include "services/gateway/json/json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include <boost/json/stream_parser.hpp>

#include "common/base/status.h"
#include "services/gateway/json/utf8.h"

namespace strata::gateway {
namespace {

namespace json = boost::json;

std::optional<unsigned> HexQuad(std::string_view s) {
  if (s.size() < 4) return std::nullopt;
  unsigned value = 0;
  const auto [end, ec] = std::from_chars(s.data(), s.data() + 4, value, 16);
  if (ec != std::errc() || end != s.data() + 4) return std::nullopt;
  return value;
}

bool IsHigh(unsigned u) { return u >= 0xD800 && u <= 0xDBFF; }
bool IsLow(unsigned u) { return u >= 0xDC00 && u <= 0xDFFF; }

// Boost.JSON refuses "\ud83d" without its other half. Such text is replaced in place: the escape
// has the same length as "\ufffd", so positions in error messages stay right.
std::string RepairSurrogates(std::string_view text) {
  std::string out(text);
  for (size_t i = 0; i + 5 < out.size(); ++i) {
    if (out[i] != '\\') continue;
    if (out[i + 1] != 'u') {
      ++i;  // an escaped backslash must not start the next escape
      continue;
    }
    const std::optional<unsigned> unit = HexQuad(std::string_view(out).substr(i + 2));
    if (!unit) continue;
    if (IsHigh(*unit) && i + 11 < out.size() && out[i + 6] == '\\' && out[i + 7] == 'u') {
      const std::optional<unsigned> next = HexQuad(std::string_view(out).substr(i + 8));
      if (next && IsLow(*next)) {
        i += 11;
        continue;
      }
    }
    if (IsHigh(*unit) || IsLow(*unit)) out.replace(i + 2, 4, "fffd");
    i += 5;
  }
  return out;
}

void AppendNumber(double value, std::string* out) {
  if (!std::isfinite(value)) {
    out->append("null");
    return;
  }
  std::array<char, 32> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  out->append(buffer.data(), result.ptr);
}

void Append(const json::value& value, std::string* out) {
  switch (value.kind()) {
    case json::kind::null:
      out->append("null");
      return;
    case json::kind::bool_:
      out->append(value.get_bool() ? "true" : "false");
      return;
    case json::kind::int64:
      out->append(std::to_string(value.get_int64()));
      return;
    case json::kind::uint64:
      out->append(std::to_string(value.get_uint64()));
      return;
    case json::kind::double_:
      AppendNumber(value.get_double(), out);
      return;
    case json::kind::string:
      AppendJsonString({value.get_string().data(), value.get_string().size()}, out);
      return;
    case json::kind::array: {
      char separator = '[';
      for (const json::value& item : value.get_array()) {
        out->push_back(separator);
        Append(item, out);
        separator = ',';
      }
      out->append(separator == '[' ? "[]" : "]");
      return;
    }
    case json::kind::object: {
      char separator = '{';
      for (const json::key_value_pair& item : value.get_object()) {
        out->push_back(separator);
        AppendJsonString({item.key().data(), item.key().size()}, out);
        out->push_back(':');
        Append(item.value(), out);
        separator = ',';
      }
      out->append(separator == '{' ? "{}" : "}");
      return;
    }
  }
}

size_t SkipSpace(std::string_view s, size_t i) {
  while (i < s.size() && (s[i] == ' ' || s[i] == '\n' || s[i] == '\r' || s[i] == '\t')) ++i;
  return i;
}

// Index after the string that starts at s[i] == '"'.
size_t SkipString(std::string_view s, size_t i) {
  for (++i; i < s.size() && s[i] != '"'; ++i) {
    if (s[i] == '\\') ++i;
  }
  return i + 1;
}

// Index after the value that starts at s[i]: the border is the first comma or closing bracket of
// the surrounding object.
size_t SkipValue(std::string_view s, size_t i) {
  int depth = 0;
  while (i < s.size()) {
    const char c = s[i];
    if (c == '"') {
      i = SkipString(s, i);
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') {
      if (depth == 0) return i;
      --depth;
    }
    if (c == ',' && depth == 0) return i;
    ++i;
  }
  return i;
}

}  // namespace

absl::StatusOr<json::value> ParseJson(std::string_view text) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  const std::string repaired =
      text.find("\\u") == std::string_view::npos ? std::string() : RepairSurrogates(text);
  if (!repaired.empty()) text = repaired;
  json::stream_parser parser(json::storage_ptr(), options);
  boost::system::error_code ec;
  const size_t used = parser.write_some(text.data(), text.size(), ec);
  if (!ec) parser.finish(ec);
  if (!ec && SkipSpace(text, used) != text.size()) ec = json::error::extra_data;
  if (ec) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body is not valid JSON: ", ec.message(), " near byte ", used));
  }
  return parser.release();
}

std::string ToJson(const json::value& value) {
  std::string out;
  Append(value, &out);
  return out;
}

void AppendJsonString(std::string_view text, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  size_t i = 0;
  while (i < text.size()) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80) {
      const int n = Utf8SequenceLength(text.substr(i));
      if (n <= 0) {
        out->append(kReplacementCharacter);
        ++i;
      } else {
        out->append(text, i, static_cast<size_t>(n));
        i += static_cast<size_t>(n);
      }
      continue;
    }
    ++i;
    switch (c) {
      case '"':
        out->append("\\\"");
        break;
      case '\\':
        out->append("\\\\");
        break;
      case '\n':
        out->append("\\n");
        break;
      case '\r':
        out->append("\\r");
        break;
      case '\t':
        out->append("\\t");
        break;
      default:
        if (c < 0x20 || c == 0x7F) {
          out->append("\\u00");
          out->push_back(kHex[c >> 4]);
          out->push_back(kHex[c & 15]);
        } else {
          out->push_back(static_cast<char>(c));
        }
    }
  }
  out->push_back('"');
}

std::string_view RawMember(std::string_view object, std::string_view key) {
  size_t i = SkipSpace(object, 0);
  if (i >= object.size() || object[i] != '{') return {};
  std::string_view found;
  ++i;
  while (true) {
    i = SkipSpace(object, i);
    if (i >= object.size() || object[i] != '"') return found;
    const size_t key_end = SkipString(object, i);
    const std::string_view name = object.substr(i + 1, key_end - i - 2);
    i = SkipSpace(object, key_end);
    if (i >= object.size() || object[i] != ':') return found;
    i = SkipSpace(object, i + 1);
    const size_t end = SkipValue(object, i);
    if (name == key) {
      found = object.substr(i, end - i);
      while (!found.empty() &&
             std::string_view(" \n\r\t").find(found.back()) != std::string_view::npos) {
        found.remove_suffix(1);
      }
    }
    if (end >= object.size() || object[end] != ',') return found;
    i = end + 1;
  }
}

}  // namespace strata::gateway
