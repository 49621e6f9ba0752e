// Recursive descent over Jinja's expression grammar. From loosest to tightest: conditional, or,
// and, not, comparisons, + -, ~, * / // %, **, unary sign, then postfix (. [] () | is).
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "services/gateway/template/ast.h"
#include "services/gateway/template/token_stream.h"

#include "absl/status/statusor.h"

namespace strata::gateway::jinja {

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& tokens, uint32_t& depth) : tokens_(tokens), depth_(depth) {}

  absl::StatusOr<ExprPtr> Expression(bool with_conditional = true);
  // Also "a, b" without parentheses, which is a tuple. A name in `end` ends it.
  absl::StatusOr<ExprPtr> TupleOrExpression(bool with_conditional = true,
                                            std::string_view end = {});
  // "name(args) | name ..." without the leading bar, applied to a null input.
  absl::StatusOr<ExprPtr> FilterChain();
  absl::StatusOr<CallArgs> Arguments();

  // Macros whose bodies are being parsed, innermost last: told which special names they use.
  std::vector<MacroDef*>& macros() { return macros_; }

 private:
  absl::StatusOr<ExprPtr> Or();
  absl::StatusOr<ExprPtr> And();
  absl::StatusOr<ExprPtr> Not();
  absl::StatusOr<ExprPtr> Comparison();
  absl::StatusOr<ExprPtr> Sum();
  absl::StatusOr<ExprPtr> Concatenation();
  absl::StatusOr<ExprPtr> Product();
  absl::StatusOr<ExprPtr> Power();
  absl::StatusOr<ExprPtr> Signed(bool with_filters);
  absl::StatusOr<ExprPtr> Primary();
  absl::StatusOr<ExprPtr> Parenthesized();
  absl::StatusOr<ExprPtr> ListItems();
  absl::StatusOr<ExprPtr> DictItems();
  absl::StatusOr<ExprPtr> Name();
  absl::StatusOr<ExprPtr> Postfix(ExprPtr object);
  absl::StatusOr<ExprPtr> FiltersAndTests(ExprPtr object);
  absl::StatusOr<ExprPtr> DotAttribute(ExprPtr object);
  absl::StatusOr<ExprPtr> BracketItem(ExprPtr object);
  absl::StatusOr<ExprPtr> OneFilter(ExprPtr input);
  absl::StatusOr<ExprPtr> OneTest(ExprPtr input);
  absl::StatusOr<ExprPtr> CallOf(ExprPtr callee);

  // A node with its depth filled in; an error when the tree gets too deep.
  template <typename Node>
  absl::StatusOr<ExprPtr> Make(uint32_t line, Node node);
  absl::Status CheckDepth(uint32_t depth) const;

  TokenStream& tokens_;
  uint32_t& depth_;  // shared with the statement parser
  std::vector<MacroDef*> macros_;
};

// Counts one level of recursion while it lives.
class NestingScope {
 public:
  explicit NestingScope(uint32_t& depth) : depth_(depth) { ++depth_; }
  ~NestingScope() { --depth_; }
  NestingScope(const NestingScope&) = delete;
  NestingScope& operator=(const NestingScope&) = delete;

 private:
  uint32_t& depth_;
};

}  // namespace strata::gateway::jinja
