#include "services/gateway/template/expression_parser.h"

#include <algorithm>
#include <array>
#include <memory>

#include "common/base/status.h"
#include "services/gateway/template/parser.h"

namespace strata::gateway::jinja {
namespace {

uint32_t DepthOf(const ExprPtr& e) { return e == nullptr ? 0 : e->depth; }

uint32_t DepthOf(const std::vector<ExprPtr>& exprs) {
  uint32_t depth = 0;
  for (const ExprPtr& e : exprs) depth = std::max(depth, DepthOf(e));
  return depth;
}

uint32_t DepthOf(const CallArgs& args) {
  uint32_t depth =
      std::max({DepthOf(args.positional), DepthOf(args.spread), DepthOf(args.named_spread)});
  for (const auto& [name, value] : args.named) depth = std::max(depth, DepthOf(value));
  return depth;
}

template <typename... Parts>
uint32_t Deepest(const Parts&... parts) {
  return std::max({uint32_t{0}, DepthOf(parts)...});
}

uint32_t ChildDepth(const Constant&) { return 0; }
uint32_t ChildDepth(const NameRef&) { return 0; }
uint32_t ChildDepth(const ListLiteral& n) { return DepthOf(n.items); }
uint32_t ChildDepth(const DictLiteral& n) {
  uint32_t depth = 0;
  for (const auto& [key, value] : n.items) depth = std::max(depth, Deepest(key, value));
  return depth;
}
uint32_t ChildDepth(const Unary& n) { return Deepest(n.operand); }
uint32_t ChildDepth(const Binary& n) { return Deepest(n.left, n.right); }
uint32_t ChildDepth(const Logic& n) { return Deepest(n.left, n.right); }
uint32_t ChildDepth(const Concat& n) { return DepthOf(n.parts); }
uint32_t ChildDepth(const Compare& n) {
  uint32_t depth = Deepest(n.first);
  for (const auto& [op, operand] : n.rest) depth = std::max(depth, DepthOf(operand));
  return depth;
}
uint32_t ChildDepth(const Conditional& n) { return Deepest(n.condition, n.then, n.otherwise); }
uint32_t ChildDepth(const Attribute& n) { return Deepest(n.object); }
uint32_t ChildDepth(const Subscript& n) { return Deepest(n.object, n.index); }
uint32_t ChildDepth(const Slice& n) { return Deepest(n.object, n.start, n.stop, n.step); }
uint32_t ChildDepth(const Call& n) { return Deepest(n.callee, n.args); }
uint32_t ChildDepth(const Filter& n) { return Deepest(n.input, n.args); }
uint32_t ChildDepth(const Test& n) { return Deepest(n.input, n.args); }

Value TextConstant(std::string bytes) {
  return Value(std::make_shared<const TextCell>(Text::Trusted(std::move(bytes)), nullptr));
}

std::optional<CompareOp> AsComparison(const Token& token) {
  if (token.kind != TokenKind::kOperator) return std::nullopt;
  constexpr std::array<std::pair<std::string_view, CompareOp>, 6> kOps = {{
      {"==", CompareOp::kEq},
      {"!=", CompareOp::kNe},
      {"<", CompareOp::kLt},
      {"<=", CompareOp::kLe},
      {">", CompareOp::kGt},
      {">=", CompareOp::kGe},
  }};
  for (const auto& [symbol, op] : kOps) {
    if (token.text == symbol) return op;
  }
  return std::nullopt;
}

}  // namespace

absl::Status ExpressionParser::CheckDepth(uint32_t depth) const {
  if (depth <= kMaxTreeDepth) return absl::OkStatus();
  return tokens_.Error(absl::StrCat("nested deeper than ", kMaxTreeDepth, " levels"));
}

template <typename Node>
absl::StatusOr<ExprPtr> ExpressionParser::Make(uint32_t line, Node node) {
  const uint32_t depth = ChildDepth(node) + 1;
  STRATA_RETURN_IF_ERROR(CheckDepth(depth));
  return std::make_unique<Expr>(Expr{line, depth, std::move(node)});
}

absl::StatusOr<ExprPtr> ExpressionParser::Expression(bool with_conditional) {
  const NestingScope nesting(depth_);
  STRATA_RETURN_IF_ERROR(CheckDepth(depth_));
  STRATA_ASSIGN_OR_RETURN(ExprPtr expr, Or());
  while (with_conditional && tokens_.IsName("if")) {
    const uint32_t line = tokens_.line();
    tokens_.Next();
    STRATA_ASSIGN_OR_RETURN(ExprPtr condition, Or());
    ExprPtr otherwise;
    if (tokens_.SkipName("else")) {
      STRATA_ASSIGN_OR_RETURN(otherwise, Expression());
    }
    STRATA_ASSIGN_OR_RETURN(
        expr, Make(line, Conditional{std::move(condition), std::move(expr), std::move(otherwise)}));
  }
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::TupleOrExpression(bool with_conditional,
                                                            std::string_view end) {
  const uint32_t line = tokens_.line();
  const auto at_end = [&] {
    return tokens_.Is(TokenKind::kBlockEnd) || tokens_.Is(TokenKind::kVariableEnd) ||
           tokens_.IsOperator(")") || (!end.empty() && tokens_.IsName(end));
  };
  if (at_end()) return tokens_.Unexpected("an expression");
  STRATA_ASSIGN_OR_RETURN(ExprPtr first, Expression(with_conditional));
  if (!tokens_.IsOperator(",")) return first;
  ListLiteral tuple;
  tuple.tuple = true;
  tuple.items.push_back(std::move(first));
  while (tokens_.SkipOperator(",") && !at_end()) {
    STRATA_ASSIGN_OR_RETURN(ExprPtr item, Expression(with_conditional));
    tuple.items.push_back(std::move(item));
  }
  return Make(line, std::move(tuple));
}

absl::StatusOr<ExprPtr> ExpressionParser::Or() {
  STRATA_ASSIGN_OR_RETURN(ExprPtr left, And());
  while (tokens_.IsName("or")) {
    const uint32_t line = tokens_.line();
    tokens_.Next();
    STRATA_ASSIGN_OR_RETURN(ExprPtr right, And());
    STRATA_ASSIGN_OR_RETURN(left, Make(line, Logic{false, std::move(left), std::move(right)}));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::And() {
  STRATA_ASSIGN_OR_RETURN(ExprPtr left, Not());
  while (tokens_.IsName("and")) {
    const uint32_t line = tokens_.line();
    tokens_.Next();
    STRATA_ASSIGN_OR_RETURN(ExprPtr right, Not());
    STRATA_ASSIGN_OR_RETURN(left, Make(line, Logic{true, std::move(left), std::move(right)}));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::Not() {
  if (!tokens_.IsName("not")) return Comparison();
  const NestingScope nesting(depth_);
  STRATA_RETURN_IF_ERROR(CheckDepth(depth_));
  const uint32_t line = tokens_.line();
  tokens_.Next();
  STRATA_ASSIGN_OR_RETURN(ExprPtr operand, Not());
  return Make(line, Unary{UnaryOp::kNot, std::move(operand)});
}

absl::StatusOr<ExprPtr> ExpressionParser::Comparison() {
  const uint32_t line = tokens_.line();
  STRATA_ASSIGN_OR_RETURN(ExprPtr first, Sum());
  Compare compare;
  while (true) {
    CompareOp op;
    if (const std::optional<CompareOp> symbol = AsComparison(tokens_.current())) {
      op = *symbol;
      tokens_.Next();
    } else if (tokens_.SkipName("in")) {
      op = CompareOp::kIn;
    } else if (tokens_.IsName("not") && tokens_.Peek().kind == TokenKind::kName &&
               tokens_.Peek().text == "in") {
      op = CompareOp::kNotIn;
      tokens_.Next();
      tokens_.Next();
    } else {
      break;
    }
    STRATA_ASSIGN_OR_RETURN(ExprPtr operand, Sum());
    compare.rest.emplace_back(op, std::move(operand));
  }
  if (compare.rest.empty()) return first;
  compare.first = std::move(first);
  return Make(line, std::move(compare));
}

absl::StatusOr<ExprPtr> ExpressionParser::Sum() {
  STRATA_ASSIGN_OR_RETURN(ExprPtr left, Concatenation());
  while (tokens_.IsOperator("+") || tokens_.IsOperator("-")) {
    const uint32_t line = tokens_.line();
    const BinaryOp op = tokens_.IsOperator("+") ? BinaryOp::kAdd : BinaryOp::kSubtract;
    tokens_.Next();
    STRATA_ASSIGN_OR_RETURN(ExprPtr right, Concatenation());
    STRATA_ASSIGN_OR_RETURN(left, Make(line, Binary{op, std::move(left), std::move(right)}));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::Concatenation() {
  const uint32_t line = tokens_.line();
  STRATA_ASSIGN_OR_RETURN(ExprPtr first, Product());
  if (!tokens_.IsOperator("~")) return first;
  Concat concat;
  concat.parts.push_back(std::move(first));
  while (tokens_.SkipOperator("~")) {
    STRATA_ASSIGN_OR_RETURN(ExprPtr part, Product());
    concat.parts.push_back(std::move(part));
  }
  return Make(line, std::move(concat));
}

absl::StatusOr<ExprPtr> ExpressionParser::Product() {
  STRATA_ASSIGN_OR_RETURN(ExprPtr left, Power());
  while (true) {
    BinaryOp op;
    if (tokens_.IsOperator("*")) {
      op = BinaryOp::kMultiply;
    } else if (tokens_.IsOperator("/")) {
      op = BinaryOp::kDivide;
    } else if (tokens_.IsOperator("//")) {
      op = BinaryOp::kFloorDivide;
    } else if (tokens_.IsOperator("%")) {
      op = BinaryOp::kModulo;
    } else {
      return left;
    }
    const uint32_t line = tokens_.line();
    tokens_.Next();
    STRATA_ASSIGN_OR_RETURN(ExprPtr right, Power());
    STRATA_ASSIGN_OR_RETURN(left, Make(line, Binary{op, std::move(left), std::move(right)}));
  }
}

// Jinja's ** is left associative, unlike Python's.
absl::StatusOr<ExprPtr> ExpressionParser::Power() {
  STRATA_ASSIGN_OR_RETURN(ExprPtr left, Signed(true));
  while (tokens_.IsOperator("**")) {
    const uint32_t line = tokens_.line();
    tokens_.Next();
    STRATA_ASSIGN_OR_RETURN(ExprPtr right, Signed(true));
    STRATA_ASSIGN_OR_RETURN(
        left, Make(line, Binary{BinaryOp::kPower, std::move(left), std::move(right)}));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::Signed(bool with_filters) {
  const NestingScope nesting(depth_);
  STRATA_RETURN_IF_ERROR(CheckDepth(depth_));
  const uint32_t line = tokens_.line();
  ExprPtr node;
  if (tokens_.IsOperator("-") || tokens_.IsOperator("+")) {
    const UnaryOp op = tokens_.IsOperator("-") ? UnaryOp::kNegate : UnaryOp::kPlus;
    tokens_.Next();
    STRATA_ASSIGN_OR_RETURN(ExprPtr operand, Signed(false));
    STRATA_ASSIGN_OR_RETURN(node, Make(line, Unary{op, std::move(operand)}));
  } else {
    STRATA_ASSIGN_OR_RETURN(node, Primary());
  }
  STRATA_ASSIGN_OR_RETURN(node, Postfix(std::move(node)));
  if (!with_filters) return node;
  return FiltersAndTests(std::move(node));
}

absl::StatusOr<ExprPtr> ExpressionParser::Primary() {
  const uint32_t line = tokens_.line();
  const Token& token = tokens_.current();
  switch (token.kind) {
    case TokenKind::kName:
      return Name();
    case TokenKind::kString: {  // adjacent strings are one
      std::string text;
      while (tokens_.Is(TokenKind::kString)) {
        text += tokens_.current().text;
        tokens_.Next();
      }
      return Make(line, Constant{TextConstant(std::move(text))});
    }
    case TokenKind::kInteger: {
      const int64_t value = token.integer;
      tokens_.Next();
      return Make(line, Constant{Value::Int(value)});
    }
    case TokenKind::kFloat: {
      const double value = token.number;
      tokens_.Next();
      return Make(line, Constant{Value::Float(value)});
    }
    case TokenKind::kOperator:
      if (token.text == "(") return Parenthesized();
      if (token.text == "[") return ListItems();
      if (token.text == "{") return DictItems();
      break;
    default:
      break;
  }
  return tokens_.Unexpected("an expression");
}

absl::StatusOr<ExprPtr> ExpressionParser::Name() {
  const uint32_t line = tokens_.line();
  const std::string name = tokens_.current().text;
  tokens_.Next();
  if (name == "true" || name == "True") return Make(line, Constant{Value::Bool(true)});
  if (name == "false" || name == "False") return Make(line, Constant{Value::Bool(false)});
  if (name == "none" || name == "None") return Make(line, Constant{Value()});
  if (!macros_.empty()) {
    MacroDef& macro = *macros_.back();
    macro.uses_varargs |= name == "varargs";
    macro.uses_kwargs |= name == "kwargs";
    macro.uses_caller |= name == "caller";
  }
  return Make(line, NameRef{name});
}

absl::StatusOr<ExprPtr> ExpressionParser::Parenthesized() {
  const uint32_t line = tokens_.line();
  tokens_.Next();
  if (tokens_.SkipOperator(")")) return Make(line, ListLiteral{{}, true});
  STRATA_ASSIGN_OR_RETURN(ExprPtr inner, TupleOrExpression());
  STRATA_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return inner;
}

absl::StatusOr<ExprPtr> ExpressionParser::ListItems() {
  const uint32_t line = tokens_.line();
  tokens_.Next();
  ListLiteral list;
  while (!tokens_.IsOperator("]")) {
    if (!list.items.empty()) {
      STRATA_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.IsOperator("]")) break;
    }
    STRATA_ASSIGN_OR_RETURN(ExprPtr item, Expression());
    list.items.push_back(std::move(item));
  }
  tokens_.Next();
  return Make(line, std::move(list));
}

absl::StatusOr<ExprPtr> ExpressionParser::DictItems() {
  const uint32_t line = tokens_.line();
  tokens_.Next();
  DictLiteral dict;
  while (!tokens_.IsOperator("}")) {
    if (!dict.items.empty()) {
      STRATA_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.IsOperator("}")) break;
    }
    STRATA_ASSIGN_OR_RETURN(ExprPtr key, Expression());
    STRATA_RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    STRATA_ASSIGN_OR_RETURN(ExprPtr value, Expression());
    dict.items.emplace_back(std::move(key), std::move(value));
  }
  tokens_.Next();
  return Make(line, std::move(dict));
}

absl::StatusOr<ExprPtr> ExpressionParser::Postfix(ExprPtr object) {
  while (true) {
    if (tokens_.IsOperator(".")) {
      STRATA_ASSIGN_OR_RETURN(object, DotAttribute(std::move(object)));
    } else if (tokens_.IsOperator("[")) {
      STRATA_ASSIGN_OR_RETURN(object, BracketItem(std::move(object)));
    } else if (tokens_.IsOperator("(")) {
      STRATA_ASSIGN_OR_RETURN(object, CallOf(std::move(object)));
    } else {
      return object;
    }
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::FiltersAndTests(ExprPtr object) {
  while (true) {
    if (tokens_.SkipOperator("|")) {
      STRATA_ASSIGN_OR_RETURN(object, OneFilter(std::move(object)));
    } else if (tokens_.SkipName("is")) {
      STRATA_ASSIGN_OR_RETURN(object, OneTest(std::move(object)));
    } else if (tokens_.IsOperator("(")) {
      STRATA_ASSIGN_OR_RETURN(object, CallOf(std::move(object)));
    } else {
      return object;
    }
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::DotAttribute(ExprPtr object) {
  const uint32_t line = tokens_.line();
  tokens_.Next();
  if (tokens_.Is(TokenKind::kInteger)) {
    STRATA_ASSIGN_OR_RETURN(ExprPtr index,
                            Make(line, Constant{Value::Int(tokens_.current().integer)}));
    tokens_.Next();
    return Make(line, Subscript{std::move(object), std::move(index)});
  }
  if (!tokens_.Is(TokenKind::kName)) return tokens_.Unexpected("an attribute name");
  std::string name = tokens_.current().text;
  tokens_.Next();
  return Make(line, Attribute{std::move(object), std::move(name)});
}

absl::StatusOr<ExprPtr> ExpressionParser::BracketItem(ExprPtr object) {
  const uint32_t line = tokens_.line();
  tokens_.Next();
  std::array<ExprPtr, 3> parts;  // start, stop, step
  size_t colons = 0;
  while (!tokens_.IsOperator("]")) {
    if (tokens_.IsOperator(":") && colons < 2) {
      tokens_.Next();
      ++colons;
    } else if (parts[colons] == nullptr) {
      STRATA_ASSIGN_OR_RETURN(parts[colons], Expression());
    } else {
      break;
    }
  }
  if (colons == 0 && parts[0] != nullptr && tokens_.IsOperator(",")) {  // a tuple as the key
    ListLiteral tuple{{}, true};
    tuple.items.push_back(std::move(parts[0]));
    while (tokens_.SkipOperator(",")) {
      STRATA_ASSIGN_OR_RETURN(ExprPtr item, Expression());
      tuple.items.push_back(std::move(item));
    }
    STRATA_ASSIGN_OR_RETURN(parts[0], Make(line, std::move(tuple)));
  }
  if (colons == 0 && parts[0] == nullptr) return tokens_.Unexpected("an index");
  STRATA_RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  if (colons == 0) return Make(line, Subscript{std::move(object), std::move(parts[0])});
  return Make(line, Slice{std::move(object), std::move(parts[0]), std::move(parts[1]),
                          std::move(parts[2])});
}

absl::StatusOr<ExprPtr> ExpressionParser::CallOf(ExprPtr callee) {
  const uint32_t line = tokens_.line();
  STRATA_ASSIGN_OR_RETURN(CallArgs args, Arguments());
  return Make(line, Call{std::move(callee), std::move(args)});
}

absl::StatusOr<CallArgs> ExpressionParser::Arguments() {
  STRATA_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  CallArgs args;
  bool first = true;
  while (!tokens_.IsOperator(")")) {
    if (!first) {
      STRATA_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.IsOperator(")")) break;
    }
    first = false;
    if (tokens_.SkipOperator("**")) {
      STRATA_ASSIGN_OR_RETURN(args.named_spread, Expression());
    } else if (tokens_.SkipOperator("*")) {
      STRATA_ASSIGN_OR_RETURN(args.spread, Expression());
    } else if (tokens_.Is(TokenKind::kName) && tokens_.Peek().kind == TokenKind::kOperator &&
               tokens_.Peek().text == "=") {
      std::string name = tokens_.current().text;
      tokens_.Next();
      tokens_.Next();
      STRATA_ASSIGN_OR_RETURN(ExprPtr value, Expression());
      args.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!args.named.empty()) {
        return tokens_.Error("positional argument after a named one");
      }
      STRATA_ASSIGN_OR_RETURN(ExprPtr value, Expression());
      args.positional.push_back(std::move(value));
    }
  }
  tokens_.Next();
  return args;
}

absl::StatusOr<ExprPtr> ExpressionParser::OneFilter(ExprPtr input) {
  const uint32_t line = tokens_.line();
  if (!tokens_.Is(TokenKind::kName)) return tokens_.Unexpected("a filter name");
  Filter filter{std::move(input), tokens_.current().text, nullptr, {}};
  filter.function = FindFilter(filter.name);
  tokens_.Next();
  if (tokens_.IsOperator("(")) {
    STRATA_ASSIGN_OR_RETURN(filter.args, Arguments());
  }
  return Make(line, std::move(filter));
}

absl::StatusOr<ExprPtr> ExpressionParser::FilterChain() {
  STRATA_ASSIGN_OR_RETURN(ExprPtr chain, OneFilter(nullptr));
  while (tokens_.SkipOperator("|")) {
    STRATA_ASSIGN_OR_RETURN(chain, OneFilter(std::move(chain)));
  }
  return chain;
}

absl::StatusOr<ExprPtr> ExpressionParser::OneTest(ExprPtr input) {
  const uint32_t line = tokens_.line();
  const bool negated = tokens_.SkipName("not");
  if (!tokens_.Is(TokenKind::kName)) return tokens_.Unexpected("a test name");
  Test test{std::move(input), tokens_.current().text, nullptr, {}, negated};
  test.function = FindTest(test.name);
  tokens_.Next();
  const TokenKind kind = tokens_.current().kind;
  const bool keyword = tokens_.IsName("else") || tokens_.IsName("or") || tokens_.IsName("and");
  if (tokens_.IsOperator("(")) {
    STRATA_ASSIGN_OR_RETURN(test.args, Arguments());
  } else if (!keyword && (kind == TokenKind::kName || kind == TokenKind::kString ||
                          kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
                          tokens_.IsOperator("[") || tokens_.IsOperator("{"))) {
    if (tokens_.IsName("is")) return tokens_.Error("tests cannot be chained with 'is'");
    STRATA_ASSIGN_OR_RETURN(ExprPtr argument, Primary());
    STRATA_ASSIGN_OR_RETURN(argument, Postfix(std::move(argument)));
    test.args.positional.push_back(std::move(argument));
  }
  return Make(line, std::move(test));
}

}  // namespace strata::gateway::jinja
