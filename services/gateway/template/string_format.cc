// Python's two ways to format into a string: "%s" % x and "{}".format(x).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "common/base/status.h"
#include "services/gateway/template/format.h"
#include "services/gateway/template/operators.h"
#include "services/gateway/template/utf8.h"

namespace strata::gateway::jinja {
namespace {

constexpr int64_t kMaxWidth = 4096;     // wider fields serve no prompt
constexpr int64_t kMaxPrecision = 100;  // digits after the point

struct Spec {
  Text fill;
  char align = 0;  // '<', '>', '^', '=' or 0
  char sign = 0;   // '+', ' ' or 0
  bool alternate = false;
  bool zero = false;
  bool thousands = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

absl::Status BadFormat(std::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("format string: ", A(why)));
}

// Reads decimal digits at `i`; -1 when there are none.
absl::StatusOr<int64_t> ReadNumber(std::string_view s, size_t& i, int64_t limit) {
  if (i >= s.size() || s[i] < '0' || s[i] > '9') return -1;
  int64_t n = 0;
  for (; i < s.size() && s[i] >= '0' && s[i] <= '9'; ++i) {
    n = n * 10 + (s[i] - '0');
    if (n > limit) return BadFormat(absl::StrCat("number above ", limit));
  }
  return n;
}

std::string Grouped(std::string digits) {
  const size_t end = std::min(digits.find('.'), digits.size());
  for (size_t i = end; i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

// The digits of a number without its sign.
absl::StatusOr<std::string> Magnitude(const Value& value, const Spec& spec) {
  const std::optional<int64_t> integer = value.AsInt();
  if (std::string_view("dixXob").find(spec.type) != std::string_view::npos && spec.type != 0) {
    int64_t n = 0;
    if (integer) {
      n = *integer;
    } else if (value.IsFloat() && std::fabs(value.AsDouble()) < 9e18 && spec.type != 'x') {
      n = static_cast<int64_t>(value.AsDouble());
    } else {
      return BadFormat(absl::StrCat("%", std::string(1, spec.type), " needs an integer"));
    }
    uint64_t u = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
    if (spec.type == 'd' || spec.type == 'i') return std::to_string(u);
    const uint64_t base = spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 16;
    const char* digits = spec.type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    std::string out;
    do {
      out.insert(out.begin(), digits[u % base]);
      u /= base;
    } while (u != 0);
    if (spec.alternate) {
      const char letter = spec.type == 'o' ? 'o' : spec.type == 'b' ? 'b' : spec.type;
      out = absl::StrCat("0", std::string(1, letter), out);
    }
    return out;
  }
  const double d = std::fabs(value.AsDouble());
  if (std::isnan(d)) return std::string("nan");
  if (std::isinf(d)) return std::string("inf");
  if (spec.type == 0 && spec.precision < 0) return FormatFloat(d);
  const bool percent = spec.type == '%';
  char conversion[] = {'%', '.', '*', 'f', 0};
  conversion[3] = percent ? 'f' : spec.type == 0 ? 'g' : spec.type;
  char buffer[512];
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const int n = std::snprintf(buffer, sizeof(buffer), conversion, precision, percent ? d * 100 : d);
  if (n < 0 || static_cast<size_t>(n) >= sizeof(buffer)) return BadFormat("number too long");
  return absl::StrCat(buffer, percent ? "%" : "");
}

void Pad(const Text& body, const Spec& spec, char default_align, Text& out) {
  const int64_t length = static_cast<int64_t>(CountCodePoints(body.bytes()));
  const int64_t missing = std::max<int64_t>(0, spec.width - length);
  const char align = spec.align != 0 ? spec.align : default_align;
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const auto fill = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      if (spec.fill.empty()) {
        out.AppendTrusted(" ");
      } else {
        out.Append(spec.fill);
      }
    }
  };
  fill(left);
  out.Append(body);
  fill(missing - left);
}

absl::Status AppendNumber(const Value& value, const Spec& spec, Text& out) {
  STRATA_ASSIGN_OR_RETURN(std::string digits, Magnitude(value, spec));
  if (spec.thousands) digits = Grouped(std::move(digits));
  const bool negative = std::signbit(value.AsDouble());
  std::string sign;
  if (negative) {
    sign.push_back('-');
  } else if (spec.sign != 0) {
    sign.push_back(spec.sign);
  }
  if ((spec.zero && spec.align == 0) || spec.align == '=') {
    const char fill = spec.fill.empty() ? (spec.zero ? '0' : ' ') : spec.fill.bytes()[0];
    const int64_t used = static_cast<int64_t>(sign.size() + digits.size());
    sign.append(static_cast<size_t>(std::max<int64_t>(0, spec.width - used)), fill);
  }
  Pad(Text::Trusted(sign + digits), spec, '>', out);
  return absl::OkStatus();
}

// ---- % ----

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Text& format, const Value& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments) {}

  absl::StatusOr<Text> Run() {
    const std::string& s = format_.bytes();
    Text out;
    for (size_t i = 0; i < s.size();) {
      const size_t percent = std::min(s.find('%', i), s.size());
      out.Append(format_, i, percent);
      i = percent;
      if (i == s.size()) break;
      ++i;
      STRATA_RETURN_IF_ERROR(Directive(i, out));
      STRATA_RETURN_IF_ERROR(runtime_.Work(1));
      STRATA_RETURN_IF_ERROR(runtime_.Fits(out.size()));
    }
    // Whatever has items may go unused, except a tuple or a string.
    const bool tuple = arguments_.IsList() && arguments_.list().tuple;
    const size_t given = tuple ? arguments_.list().items.size() : 1;
    const bool has_items = arguments_.IsDict() || arguments_.IsList() || arguments_.IsUndefined();
    if (next_ < given && (tuple || !has_items)) return BadFormat("not all arguments were used");
    return out;
  }

 private:
  absl::StatusOr<Value> Next() {
    if (arguments_.IsList() && arguments_.list().tuple) {
      const std::vector<Value>& items = arguments_.list().items;
      if (next_ < items.size()) return items[next_++];
    } else if (next_ == 0) {
      ++next_;
      return arguments_;
    }
    return BadFormat("not enough arguments");
  }

  absl::Status Directive(size_t& i, Text& out) {
    const std::string& s = format_.bytes();
    Spec spec;
    std::optional<Value> named;
    if (i < s.size() && s[i] == '(') {
      const size_t close = s.find(')', i);
      if (close == std::string::npos) return BadFormat("'%(' without ')'");
      if (!arguments_.IsDict()) return BadFormat("%(name) needs a mapping");
      const std::string key = s.substr(i + 1, close - i - 1);
      const Value* found = arguments_.dict().Find(std::string_view(key));
      if (found == nullptr) return BadFormat(absl::StrCat("no key '", key, "'"));
      named = *found;
      i = close + 1;
    }
    for (; i < s.size(); ++i) {
      if (s[i] == '-') {
        spec.align = '<';
      } else if (s[i] == '0') {
        spec.zero = true;
      } else if (s[i] == '+' || s[i] == ' ') {
        spec.sign = spec.sign == '+' ? '+' : s[i];
      } else if (s[i] == '#') {
        spec.alternate = true;
      } else {
        break;
      }
    }
    STRATA_ASSIGN_OR_RETURN(const int64_t width, ReadNumber(s, i, kMaxWidth));
    spec.width = std::max<int64_t>(width, 0);
    if (i < s.size() && s[i] == '.') {
      ++i;
      STRATA_ASSIGN_OR_RETURN(spec.precision, ReadNumber(s, i, kMaxPrecision));
      spec.precision = std::max<int64_t>(spec.precision, 0);
    }
    if (i >= s.size()) return BadFormat("incomplete directive");
    const char type = s[i++];
    if (type == '%') {
      out.AppendTrusted("%");
      return absl::OkStatus();
    }
    if (!named) {
      STRATA_ASSIGN_OR_RETURN(named, Next());
    }
    return Emit(type, *named, spec, out);
  }

  absl::Status Emit(char type, const Value& value, Spec spec, Text& out) {
    if (type == 's' || type == 'r' || type == 'a') {
      Text body;
      STRATA_RETURN_IF_ERROR(type == 's' ? AppendStr(runtime_, value, body)
                                         : AppendRepr(runtime_, value, body));
      if (spec.precision >= 0) {
        body = body.Sub(0, ByteOffset(body.bytes(), static_cast<size_t>(spec.precision)));
      }
      Pad(body, spec, '>', out);
      return absl::OkStatus();
    }
    if (std::string_view("diufFeEgGxXo").find(type) == std::string_view::npos) {
      return BadFormat(absl::StrCat("unsupported directive %", std::string(1, type)));
    }
    if (!value.IsNumber()) {
      return BadFormat(
          absl::StrCat("%", std::string(1, type), " needs a number, not ", A(value.TypeName())));
    }
    spec.type = type == 'u' ? 'd' : type;
    return AppendNumber(value, spec, out);
  }

  Runtime& runtime_;
  const Text& format_;
  const Value& arguments_;
  size_t next_ = 0;
};

// ---- str.format ----

absl::StatusOr<Spec> ParseSpec(const Text& text) {
  const std::string& s = text.bytes();
  Spec spec;
  size_t i = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!s.empty()) {
    const size_t first = DecodeAt(s, 0).length;
    if (first < s.size() && is_align(s[first])) {
      spec.fill = text.Sub(0, first);
      spec.align = s[first];
      i = first + 1;
    } else if (is_align(s[0])) {
      spec.align = s[0];
      i = 1;
    }
  }
  if (i < s.size() && (s[i] == '+' || s[i] == '-' || s[i] == ' ')) {
    spec.sign = s[i] == '-' ? 0 : s[i];
    ++i;
  }
  if (i < s.size() && s[i] == '#') {
    spec.alternate = true;
    ++i;
  }
  if (i < s.size() && s[i] == '0') {
    spec.zero = true;
    ++i;
  }
  STRATA_ASSIGN_OR_RETURN(const int64_t width, ReadNumber(s, i, kMaxWidth));
  spec.width = std::max<int64_t>(width, 0);
  if (i < s.size() && (s[i] == ',' || s[i] == '_')) {
    if (s[i] == '_') return BadFormat("'_' grouping is not supported");
    spec.thousands = true;
    ++i;
  }
  if (i < s.size() && s[i] == '.') {
    ++i;
    STRATA_ASSIGN_OR_RETURN(spec.precision, ReadNumber(s, i, kMaxPrecision));
    if (spec.precision < 0) return BadFormat("missing precision");
  }
  if (i < s.size()) spec.type = s[i++];
  if (i != s.size()) return BadFormat(absl::StrCat("invalid specification '", s, "'"));
  return spec;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Text& format, const Args& args)
      : runtime_(runtime), format_(format), args_(args) {}

  absl::StatusOr<Text> Run() {
    const std::string& s = format_.bytes();
    Text out;
    for (size_t i = 0; i < s.size();) {
      const size_t brace = std::min(s.find_first_of("{}", i), s.size());
      out.Append(format_, i, brace);
      i = brace;
      if (i == s.size()) break;
      if (i + 1 < s.size() && s[i + 1] == s[i]) {
        out.Append(format_, i, i + 1);
        i += 2;
        continue;
      }
      const size_t close = s.find('}', i);
      if (s[i] == '}' || close == std::string::npos) return BadFormat("unmatched brace");
      if (s.find('{', i + 1) < close) return BadFormat("nested fields are not supported");
      STRATA_RETURN_IF_ERROR(Field(format_.Sub(i + 1, close), out));
      STRATA_RETURN_IF_ERROR(runtime_.Work(1));
      STRATA_RETURN_IF_ERROR(runtime_.Fits(out.size()));
      i = close + 1;
    }
    return out;
  }

 private:
  absl::Status Field(const Text& field, Text& out) {
    const std::string& s = field.bytes();
    const size_t colon = std::min(s.find(':'), s.size());
    size_t name_end = colon;
    char conversion = 0;
    if (const size_t bang = s.find('!'); bang < colon) {
      if (bang + 2 != colon) return BadFormat("bad conversion");
      conversion = s[bang + 1];
      name_end = bang;
    }
    STRATA_ASSIGN_OR_RETURN(Value value, Lookup(std::string_view(s).substr(0, name_end)));
    STRATA_ASSIGN_OR_RETURN(const Spec spec,
                            ParseSpec(colon < s.size() ? field.Sub(colon + 1, s.size()) : Text()));
    Text body;
    if (conversion == 'r') {
      STRATA_RETURN_IF_ERROR(AppendRepr(runtime_, value, body));
    } else if (conversion == 's' || (value.IsBool() && spec.type == 0) || !value.IsNumber()) {
      if (spec.type != 0 && spec.type != 's') return BadFormat("a number is needed here");
      STRATA_RETURN_IF_ERROR(AppendStr(runtime_, value, body));
    } else if (conversion == 0) {
      Spec number = spec;
      if (number.type == 0 && value.AsInt()) number.type = 'd';
      if (number.type == 'n') number.type = 'd';
      if (std::string_view("dfFeEgGxXob%").find(number.type) == std::string_view::npos &&
          number.type != 0) {
        return BadFormat(absl::StrCat("unknown type '", std::string(1, number.type), "'"));
      }
      if (value.IsFloat() &&
          std::string_view("dxXob").find(number.type) != std::string_view::npos &&
          number.type != 0) {
        return BadFormat("an integer is needed here");
      }
      return AppendNumber(value, number, out);
    } else {
      return BadFormat("unknown conversion");
    }
    if (spec.precision >= 0) {
      body = body.Sub(0, ByteOffset(body.bytes(), static_cast<size_t>(spec.precision)));
    }
    Pad(body, spec, '<', out);
    return absl::OkStatus();
  }

  // "", "0", "name", then any of ".attribute" and "[key]".
  absl::StatusOr<Value> Lookup(std::string_view path) {
    size_t i = std::min(path.find_first_of(".["), path.size());
    STRATA_ASSIGN_OR_RETURN(Value value, First(path.substr(0, i)));
    while (i < path.size()) {
      if (path[i] == '.') {
        const size_t end = std::min(path.find_first_of(".[", i + 1), path.size());
        STRATA_ASSIGN_OR_RETURN(value,
                                GetAttribute(runtime_, value, path.substr(i + 1, end - i - 1)));
        i = end;
        continue;
      }
      const size_t close = path.find(']', i);
      if (close == std::string_view::npos) return BadFormat("'[' without ']'");
      const std::string_view key = path.substr(i + 1, close - i - 1);
      size_t digits = 0;
      STRATA_ASSIGN_OR_RETURN(const int64_t index, ReadNumber(key, digits, INT32_MAX));
      const Value item = index >= 0 && digits == key.size()
                             ? Value::Int(index)
                             : runtime_.heap().NewTrusted(std::string(key));
      STRATA_ASSIGN_OR_RETURN(value, GetItem(runtime_, value, item));
      i = close + 1;
    }
    return value;
  }

  absl::StatusOr<Value> First(std::string_view name) {
    size_t digits = 0;
    STRATA_ASSIGN_OR_RETURN(int64_t index, ReadNumber(name, digits, INT32_MAX));
    if (name.empty()) index = next_++;
    if (name.empty() || (index >= 0 && digits == name.size())) {
      if (static_cast<size_t>(index) < args_.positional.size()) {
        return args_.positional[static_cast<size_t>(index)];
      }
      return BadFormat(absl::StrCat("no argument number ", index));
    }
    for (const auto& [key, value] : args_.named) {
      if (key == name) return value;
    }
    return BadFormat(absl::StrCat("no argument '", A(name), "'"));
  }

  Runtime& runtime_;
  const Text& format_;
  const Args& args_;
  int64_t next_ = 0;
};

}  // namespace

absl::StatusOr<Value> PercentFormat(Runtime& runtime, const Value& format, const Value& arguments) {
  STRATA_RETURN_IF_ERROR(runtime.Room(format.text().size()));
  STRATA_ASSIGN_OR_RETURN(Text out, PercentFormatter(runtime, format.text(), arguments).Run());
  return runtime.heap().NewText(std::move(out));
}

absl::StatusOr<Value> BraceFormat(Runtime& runtime, const Value& format, const Args& args) {
  STRATA_RETURN_IF_ERROR(runtime.Room(format.text().size()));
  STRATA_ASSIGN_OR_RETURN(Text out, BraceFormatter(runtime, format.text(), args).Run());
  return runtime.heap().NewText(std::move(out));
}

}  // namespace strata::gateway::jinja
