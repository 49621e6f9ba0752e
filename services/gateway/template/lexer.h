// Template source to tokens, with the whitespace rules that chat templates are written for:
// trim_blocks (a line break after %} or #} disappears), lstrip_blocks (blanks before a {% or {#
// that starts a line disappear), no final line break, "-" strips and "+" keeps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace strata::gateway::jinja {

enum class TokenKind {
  kText,           // template text; never empty
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kName,           // identifiers and keywords
  kString,         // text: the string's value, escapes resolved
  kInteger,
  kFloat,
  kOperator,  // text: one of + - / // * % ** ~ [ ] ( ) { } == != > >= < <= = . : | ,
  kEnd,
};

struct Token {
  TokenKind kind;
  uint32_t line;
  std::string text;
  int64_t integer = 0;
  double number = 0;
};

// The list ends with one kEnd token. Errors: InvalidArgument "line N: ...".
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace strata::gateway::jinja
