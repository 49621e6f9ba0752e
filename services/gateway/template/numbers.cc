#include "services/gateway/template/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "services/gateway/template/utf8.h"

namespace strata::gateway::jinja {
namespace {

std::string_view Trimmed(std::string_view s) {
  while (!s.empty() && IsSpace(DecodeAt(s, 0).value)) s.remove_prefix(DecodeAt(s, 0).length);
  while (!s.empty()) {
    const size_t start = PreviousStart(s, s.size());
    if (!IsSpace(DecodeAt(s, start).value)) break;
    s = s.substr(0, start);
  }
  return s;
}

bool Alnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Without the underscores; nothing when one does not stand between two digits.
std::optional<std::string> WithoutUnderscores(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '_') {
      out.push_back(s[i]);
      continue;
    }
    if (i == 0 || i + 1 == s.size() || !Alnum(s[i - 1]) || !Alnum(s[i + 1])) return std::nullopt;
  }
  return out;
}

std::string_view TakeSign(std::string_view s, bool& negative) {
  negative = !s.empty() && s[0] == '-';
  return !s.empty() && (s[0] == '-' || s[0] == '+') ? s.substr(1) : s;
}

}  // namespace

std::optional<int64_t> ParseInt(std::string_view text, int64_t base) {
  if (base < 2 || base > 36) return std::nullopt;
  bool negative = false;
  std::string_view s = TakeSign(Trimmed(text), negative);
  if (s.size() > 2 && s[0] == '0') {
    const char letter = static_cast<char>(s[1] | 0x20);
    const int64_t prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefix == base) s.remove_prefix(s[2] == '_' ? 3 : 2);
  }
  const std::optional<std::string> digits = WithoutUnderscores(s);
  if (!digits || digits->empty() || digits->front() == '-') return std::nullopt;
  uint64_t value = 0;
  const auto read = std::from_chars(digits->data(), digits->data() + digits->size(), value,
                                    static_cast<int>(base));
  if (read.ec != std::errc() || read.ptr != digits->data() + digits->size()) return std::nullopt;
  const uint64_t limit =
      static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) + (negative ? 1 : 0);
  if (value > limit) return std::nullopt;
  return negative ? static_cast<int64_t>(0 - value) : static_cast<int64_t>(value);
}

std::optional<double> ParseFloat(std::string_view text) {
  bool negative = false;
  const std::optional<std::string> digits = WithoutUnderscores(TakeSign(Trimmed(text), negative));
  if (!digits || digits->empty()) return std::nullopt;
  std::string lower = *digits;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (!(lower[0] >= '0' && lower[0] <= '9') && lower[0] != '.') return std::nullopt;
    const char* end = lower.data() + lower.size();
    const auto read = std::from_chars(lower.data(), end, value);
    if (read.ptr != end || read.ec == std::errc::invalid_argument) return std::nullopt;
    if (read.ec == std::errc::result_out_of_range) {
      const size_t e = lower.find('e');
      const bool tiny = e != std::string::npos && lower.compare(e + 1, 1, "-") == 0;
      value = tiny ? 0 : std::numeric_limits<double>::infinity();
    }
  }
  return negative ? -value : value;
}

}  // namespace strata::gateway::jinja
