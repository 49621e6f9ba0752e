#include "services/gateway/template/lexer.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "common/base/status.h"
#include "services/gateway/template/utf8.h"

namespace strata::gateway::jinja {
namespace {

constexpr std::string_view kTwoCharOperators[] = {"//", "**", "==", "!=", ">=", "<="};
constexpr std::string_view kOneCharOperators = "+-/*%~[](){}><=.:|,";

bool IsDigitChar(char c) { return c >= '0' && c <= '9'; }

// One line break form, and no break at the very end.
std::string Normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (position_ < source_.size()) STRATA_RETURN_IF_ERROR(Root());
    Push(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  enum class Tag { kNone, kVariable, kBlock, kComment };

  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", A(what)));
  }

  bool At(std::string_view s) const {
    return std::string_view(source_).substr(position_, s.size()) == s;
  }

  // Moves to `end`, counting lines, and remembers whether that is the start of a line.
  void MoveTo(size_t end) {
    if (end == position_) return;
    line_ += static_cast<uint32_t>(std::count(source_.begin() + static_cast<ptrdiff_t>(position_),
                                              source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    position_ = end;
    line_starting_ = source_[end - 1] == '\n';
  }

  Token& Push(TokenKind kind, std::string text = {}) {
    tokens_.push_back(Token{kind, line_, std::move(text)});
    return tokens_.back();
  }

  size_t SkipSpace(size_t i) const {
    while (i < source_.size()) {
      const CodePoint c = DecodeAt(source_, i);
      if (!IsSpace(c.value)) break;
      i += c.length;
    }
    return i;
  }

  static std::string_view StripRight(std::string_view text) {
    while (!text.empty()) {
      const size_t start = PreviousStart(text, text.size());
      if (!IsSpace(DecodeAt(text, start).value)) break;
      text = text.substr(0, start);
    }
    return text;
  }

  // Applies the sign of a tag ("-", "+" or none) and lstrip_blocks to the text before it.
  std::string_view StripBefore(std::string_view text, char sign, Tag tag, bool starts_line) const {
    if (sign == '-') return StripRight(text);
    if (sign == '+' || tag == Tag::kVariable) return text;
    const size_t line_break = text.rfind('\n');
    if (line_break == std::string_view::npos && !starts_line) return text;
    const size_t line_begin = line_break == std::string_view::npos ? 0 : line_break + 1;
    const bool blank = StripRight(text.substr(line_begin)).empty();
    return blank ? text.substr(0, line_begin) : text;
  }

  static char SignAt(std::string_view source, size_t i) {
    return i < source.size() && (source[i] == '-' || source[i] == '+') ? source[i] : '\0';
  }

  // Text up to the next tag, then the tag.
  absl::Status Root() {
    size_t begin = position_;
    Tag tag = Tag::kNone;
    for (; tag == Tag::kNone; ++begin) {
      begin = source_.find('{', begin);
      if (begin == std::string::npos || begin + 1 >= source_.size()) break;
      const char next = source_[begin + 1];
      tag = next == '{'   ? Tag::kVariable
            : next == '%' ? Tag::kBlock
            : next == '#' ? Tag::kComment
                          : Tag::kNone;
      if (tag != Tag::kNone) break;
    }
    if (tag == Tag::kNone) {
      Push(TokenKind::kText, source_.substr(position_));
      position_ = source_.size();
      return absl::OkStatus();
    }
    const char sign = SignAt(source_, begin + 2);
    const std::string_view before(source_.data() + position_, begin - position_);
    const std::string_view kept = StripBefore(before, sign, tag, line_starting_);
    if (!kept.empty()) Push(TokenKind::kText, std::string(kept));
    MoveTo(begin);
    const size_t inside = begin + (sign == 0 ? 2 : 3);
    if (tag == Tag::kComment) return Comment(inside);
    if (tag == Tag::kBlock) {
      if (const std::optional<size_t> raw = RawBegin(inside)) return Raw(*raw);
    }
    Push(tag == Tag::kBlock ? TokenKind::kBlockBegin : TokenKind::kVariableBegin);
    MoveTo(inside);
    return Code(tag);
  }

  // End of a tag whose closing characters start at `close` (after an optional sign): position after
  // it and the whitespace it swallows.
  size_t AfterClose(size_t close, char sign) const {
    const size_t end = close + 2;
    if (sign == '-') return SkipSpace(end);
    if (sign != '+' && end < source_.size() && source_[end] == '\n') return end + 1;
    return end;
  }

  absl::Status Comment(size_t inside) {
    const size_t close = source_.find("#}", inside);
    if (close == std::string::npos) return Error("comment without '#}'");
    const char sign = close > inside ? SignAt(source_, close - 1) : '\0';
    MoveTo(AfterClose(close, sign));
    return absl::OkStatus();
  }

  // Position after `raw %}` when the block tag that starts at `inside` is one.
  std::optional<size_t> RawBegin(size_t inside) const {
    size_t i = SkipSpace(inside);
    if (source_.compare(i, 3, "raw") != 0) return std::nullopt;
    i = SkipSpace(i + 3);
    const bool strip = SignAt(source_, i) == '-';
    if (strip) ++i;
    if (source_.compare(i, 2, "%}") != 0) return std::nullopt;
    return strip ? SkipSpace(i + 2) : i + 2;
  }

  absl::Status Raw(size_t begin) {
    MoveTo(begin);
    const bool starts_line = line_starting_;
    for (size_t tag = source_.find("{%", begin); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      const char sign = SignAt(source_, tag + 2);
      size_t i = SkipSpace(tag + (sign == 0 ? 2 : 3));
      if (source_.compare(i, 6, "endraw") != 0) continue;
      i = SkipSpace(i + 6);
      const char end_sign = SignAt(source_, i);
      if (end_sign != 0) ++i;
      if (source_.compare(i, 2, "%}") != 0) continue;
      const std::string_view body(source_.data() + begin, tag - begin);
      const std::string_view kept = StripBefore(body, sign, Tag::kBlock, starts_line);
      if (!kept.empty()) Push(TokenKind::kText, std::string(kept));
      MoveTo(AfterClose(i, end_sign));
      return absl::OkStatus();
    }
    return Error("raw block without {% endraw %}");
  }

  // Expression tokens up to the end of the tag. Inside brackets, the closing characters of a tag
  // are ordinary operators: {{ {'a': {}} }}.
  absl::Status Code(Tag tag) {
    std::string brackets;
    const std::string_view closing = tag == Tag::kBlock ? "%}" : "}}";
    while (true) {
      MoveTo(SkipSpace(position_));
      if (position_ >= source_.size()) {
        return Error(tag == Tag::kBlock ? "tag without '%}'" : "expression without '}}'");
      }
      if (brackets.empty()) {
        // A variable end knows no "+".
        char sign = SignAt(source_, position_);
        if (sign == '+' && tag == Tag::kVariable) sign = '\0';
        const size_t close = position_ + (sign == 0 ? 0 : 1);
        if (source_.compare(close, 2, closing) == 0) {
          Push(tag == Tag::kBlock ? TokenKind::kBlockEnd : TokenKind::kVariableEnd);
          const bool trims = tag == Tag::kBlock || sign == '-';
          MoveTo(trims ? AfterClose(close, sign) : close + 2);
          return absl::OkStatus();
        }
      }
      STRATA_RETURN_IF_ERROR(OneToken(brackets));
    }
  }

  absl::Status OneToken(std::string& brackets) {
    const char c = source_[position_];
    if (IsDigitChar(c)) return Number();
    if (c == '\'' || c == '"') return String(c);
    const size_t name_end = NameEnd();
    if (name_end != position_) {
      Push(TokenKind::kName, source_.substr(position_, name_end - position_));
      MoveTo(name_end);
      return absl::OkStatus();
    }
    for (const std::string_view op : kTwoCharOperators) {
      if (!At(op)) continue;
      Push(TokenKind::kOperator, std::string(op));
      MoveTo(position_ + 2);
      return absl::OkStatus();
    }
    if (kOneCharOperators.find(c) == std::string_view::npos) {
      return Error(absl::StrCat("unexpected character '", std::string(1, c), "'"));
    }
    STRATA_RETURN_IF_ERROR(Balance(c, brackets));
    Push(TokenKind::kOperator, std::string(1, c));
    MoveTo(position_ + 1);
    return absl::OkStatus();
  }

  absl::Status Balance(char c, std::string& brackets) const {
    constexpr std::string_view kOpen = "([{";
    constexpr std::string_view kClose = ")]}";
    if (kOpen.find(c) != std::string_view::npos) {
      brackets.push_back(kClose[kOpen.find(c)]);
    } else if (kClose.find(c) != std::string_view::npos) {
      if (brackets.empty() || brackets.back() != c) {
        return Error(absl::StrCat("unexpected '", std::string(1, c), "'"));
      }
      brackets.pop_back();
    }
    return absl::OkStatus();
  }

  size_t NameEnd() const {
    size_t i = position_;
    while (i < source_.size()) {
      const CodePoint c = DecodeAt(source_, i);
      const bool word = c.value == '_' || (c.value != kInvalidCodePoint && IsAlnum(c.value));
      if (!word) break;
      i += c.length;
    }
    return i;
  }

  // Digits with single underscores between them; `digits` gets them without.
  size_t Digits(size_t i, int base, std::string& digits) const {
    const auto is_digit = [base](char c) {
      if (base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))) return true;
      return c >= '0' && c < '0' + std::min(base, 10);
    };
    while (i < source_.size()) {
      if (is_digit(source_[i])) {
        digits.push_back(source_[i++]);
      } else if (source_[i] == '_' && !digits.empty() && i + 1 < source_.size() &&
                 is_digit(source_[i + 1])) {
        ++i;
      } else {
        break;
      }
    }
    return i;
  }

  absl::Status Number() {
    size_t i = position_;
    std::string digits;
    int base = 10;
    if (source_[i] == '0' && i + 1 < source_.size()) {
      const char letter = static_cast<char>(source_[i + 1] | 0x20);
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    }
    i = Digits(base == 10 ? i : i + 2, base, digits);
    bool is_float = false;
    if (base == 10) {
      const size_t fraction = i + 1;
      if (i < source_.size() && source_[i] == '.' && fraction < source_.size() &&
          IsDigitChar(source_[fraction])) {
        is_float = true;
        std::string part;
        i = Digits(fraction, 10, part);
        digits += "." + part;
      }
      i = Exponent(i, digits, is_float);
    }
    Token& token = Push(is_float ? TokenKind::kFloat : TokenKind::kInteger);
    const char* first = digits.data();
    const char* last = first + digits.size();
    const std::from_chars_result read = is_float
                                            ? std::from_chars(first, last, token.number)
                                            : std::from_chars(first, last, token.integer, base);
    if (read.ec != std::errc() || read.ptr != last) {
      return Error(absl::StrCat("number out of range: ", digits));
    }
    MoveTo(i);
    return absl::OkStatus();
  }

  size_t Exponent(size_t i, std::string& digits, bool& is_float) const {
    if (i >= source_.size() || (source_[i] | 0x20) != 'e') return i;
    size_t j = i + 1;
    std::string part = "e";
    if (j < source_.size() && (source_[j] == '+' || source_[j] == '-')) {
      if (source_[j] == '-') part += '-';
      ++j;
    }
    if (j >= source_.size() || !IsDigitChar(source_[j])) return i;
    std::string exponent;
    j = Digits(j, 10, exponent);
    digits += part + exponent;
    is_float = true;
    return j;
  }

  absl::Status String(char quote) {
    std::string value;
    size_t i = position_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = Escape(i + 1, value);
      } else {
        value.push_back(source_[i++]);
      }
    }
    if (i >= source_.size()) return Error("string without closing quote");
    Push(TokenKind::kString, std::move(value));
    MoveTo(i + 1);
    return absl::OkStatus();
  }

  // Resolves the escape whose letter is at `i`; returns the position after it. Unknown escapes keep
  // their backslash, as in Python.
  size_t Escape(size_t i, std::string& out) const {
    const char c = source_[i];
    switch (c) {
      case 'n':
        out.push_back('\n');
        return i + 1;
      case 't':
        out.push_back('\t');
        return i + 1;
      case 'r':
        out.push_back('\r');
        return i + 1;
      case 'a':
        out.push_back('\a');
        return i + 1;
      case 'b':
        out.push_back('\b');
        return i + 1;
      case 'f':
        out.push_back('\f');
        return i + 1;
      case 'v':
        out.push_back('\v');
        return i + 1;
      case '\\':
      case '\'':
      case '"':
        out.push_back(c);
        return i + 1;
      case '\n':
        return i + 1;
      case 'x':
        return CodeEscape(i, 2, out);
      case 'u':
        return CodeEscape(i, 4, out);
      case 'U':
        return CodeEscape(i, 8, out);
      default:
        break;
    }
    if (c >= '0' && c <= '7') {
      char32_t value = 0;
      size_t j = i;
      for (; j < i + 3 && j < source_.size() && source_[j] >= '0' && source_[j] <= '7'; ++j) {
        value = value * 8 + static_cast<char32_t>(source_[j] - '0');
      }
      AppendUtf8(value, &out);
      return j;
    }
    out.push_back('\\');
    out.push_back(c);
    return i + 1;
  }

  size_t CodeEscape(size_t i, size_t digits, std::string& out) const {
    uint32_t value = 0;
    const char* first = source_.data() + i + 1;
    const char* last = first + std::min(digits, source_.size() - i - 1);
    const std::from_chars_result read = std::from_chars(first, last, value, 16);
    const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
    if (read.ptr != first + digits || value > 0x10FFFF || surrogate) {
      out.push_back('\\');
      out.push_back(source_[i]);
      return i + 1;
    }
    AppendUtf8(value, &out);
    return i + 1 + digits;
  }

  const std::string source_;
  size_t position_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(Normalize(source)).Run();
}

}  // namespace strata::gateway::jinja
