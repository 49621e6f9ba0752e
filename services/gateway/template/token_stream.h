// Cursor over a template's tokens.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "services/gateway/template/lexer.h"

#include "absl/status/status.h"

namespace strata::gateway::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[position_]; }
  const Token& Peek() const {
    return tokens_[position_ + 1 < tokens_.size() ? position_ + 1 : position_];
  }
  uint32_t line() const { return current().line; }
  void Next() {
    if (position_ + 1 < tokens_.size()) ++position_;
  }

  bool Is(TokenKind kind) const { return current().kind == kind; }
  bool IsName(std::string_view name) const {
    return Is(TokenKind::kName) && current().text == name;
  }
  bool IsOperator(std::string_view op) const {
    return Is(TokenKind::kOperator) && current().text == op;
  }
  bool SkipName(std::string_view name) {
    if (!IsName(name)) return false;
    Next();
    return true;
  }
  bool SkipOperator(std::string_view op) {
    if (!IsOperator(op)) return false;
    Next();
    return true;
  }

  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line(), ": ", A(what)));
  }
  absl::Status Unexpected(std::string_view wanted) const {
    return Error(absl::StrCat("expected ", A(wanted), ", got ", Describe(current())));
  }
  absl::Status ExpectOperator(std::string_view op) {
    if (SkipOperator(op)) return absl::OkStatus();
    return Unexpected(absl::StrCat("'", A(op), "'"));
  }
  absl::Status ExpectName(std::string_view name) {
    if (SkipName(name)) return absl::OkStatus();
    return Unexpected(absl::StrCat("'", A(name), "'"));
  }
  absl::Status Expect(TokenKind kind, std::string_view wanted) {
    if (!Is(kind)) return Unexpected(wanted);
    Next();
    return absl::OkStatus();
  }

  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kText:
        return "template text";
      case TokenKind::kBlockBegin:
        return "'{%'";
      case TokenKind::kBlockEnd:
        return "'%}'";
      case TokenKind::kVariableBegin:
        return "'{{'";
      case TokenKind::kVariableEnd:
        return "'}}'";
      case TokenKind::kInteger:
        return absl::StrCat("number ", token.integer);
      case TokenKind::kFloat:
        return absl::StrCat("number ", token.number);
      case TokenKind::kString:
        return "a string";
      case TokenKind::kEnd:
        return "the end of the template";
      case TokenKind::kName:
      case TokenKind::kOperator:
        break;
    }
    return absl::StrCat("'", token.text, "'");
  }

 private:
  std::vector<Token> tokens_;
  size_t position_ = 0;
};

}  // namespace strata::gateway::jinja
