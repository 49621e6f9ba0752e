#include "services/gateway/template/parser.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/status.h"
#include "services/gateway/template/expression_parser.h"
#include "services/gateway/template/lexer.h"
#include "services/gateway/template/token_stream.h"

namespace strata::gateway::jinja {
namespace {

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens)
      : tokens_(std::move(tokens)), expressions_(tokens_, depth_) {}

  absl::StatusOr<Block> Run() { return Statements({}); }

 private:
  using EndTags = std::initializer_list<std::string_view>;

  // Statements up to a tag named in `ends`, whose name becomes the current token. With no `ends`:
  // up to the end of the template.
  absl::StatusOr<Block> Statements(EndTags ends) {
    const NestingScope nesting(depth_);
    if (depth_ > kMaxTreeDepth) {
      return tokens_.Error(absl::StrCat("nested deeper than ", kMaxTreeDepth, " levels"));
    }
    Block block;
    while (!tokens_.Is(TokenKind::kEnd)) {
      const uint32_t line = tokens_.line();
      if (tokens_.Is(TokenKind::kText)) {
        block.push_back({line, Output{Text::Trusted(tokens_.current().text)}});
        tokens_.Next();
      } else if (tokens_.Is(TokenKind::kVariableBegin)) {
        tokens_.Next();
        STRATA_ASSIGN_OR_RETURN(ExprPtr value, expressions_.TupleOrExpression());
        STRATA_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kVariableEnd, "'}}'"));
        block.push_back({line, Print{std::move(value)}});
      } else {
        STRATA_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kBlockBegin, "a tag"));
        if (!tokens_.Is(TokenKind::kName)) return tokens_.Unexpected("a tag name");
        const std::string name = tokens_.current().text;
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) return block;
        tokens_.Next();
        STRATA_RETURN_IF_ERROR(Statement(name, line, block));
      }
    }
    if (ends.size() == 0) return block;
    return tokens_.Error(absl::StrCat("missing {% ", A(*(ends.end() - 1)), " %}"));
  }

  // The body of a tag: from after its head to its end tag, which is consumed.
  absl::StatusOr<Block> Body(std::string_view end) {
    STRATA_RETURN_IF_ERROR(EndOfTag());
    STRATA_ASSIGN_OR_RETURN(Block body, Statements({end}));
    STRATA_RETURN_IF_ERROR(tokens_.ExpectName(end));
    STRATA_RETURN_IF_ERROR(EndOfTag());
    return body;
  }

  absl::Status EndOfTag() {
    tokens_.SkipOperator(":");  // {% if x: %} is allowed
    return tokens_.Expect(TokenKind::kBlockEnd, "'%}'");
  }

  absl::Status Statement(std::string_view name, uint32_t line, Block& block) {
    if (name == "if") return IfTag(line, block);
    if (name == "for") return ForTag(line, block);
    if (name == "set") return SetTag(line, block);
    if (name == "macro") return MacroTag(line, block);
    if (name == "call") return CallTag(line, block);
    if (name == "filter") return FilterTag(line, block);
    if (name == "with") return WithTag(line, block);
    if (name == "generation") {
      STRATA_ASSIGN_OR_RETURN(Block body, Body("endgeneration"));
      block.push_back({line, With{{}, std::move(body)}});
      return absl::OkStatus();
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return tokens_.Error(absl::StrCat("'", A(name), "' outside of a loop"));
      if (name == "break") {
        block.push_back({line, Break{}});
      } else {
        block.push_back({line, Continue{}});
      }
      return EndOfTag();
    }
    return tokens_.Error(absl::StrCat("unknown tag '", A(name), "'"));
  }

  absl::Status IfTag(uint32_t line, Block& block) {
    If node;
    while (true) {
      STRATA_ASSIGN_OR_RETURN(ExprPtr condition, expressions_.TupleOrExpression(false));
      STRATA_RETURN_IF_ERROR(EndOfTag());
      STRATA_ASSIGN_OR_RETURN(Block body, Statements({"elif", "else", "endif"}));
      node.branches.emplace_back(std::move(condition), std::move(body));
      if (!tokens_.SkipName("elif")) break;
    }
    if (tokens_.SkipName("else")) {
      STRATA_ASSIGN_OR_RETURN(node.otherwise, Body("endif"));
    } else {
      STRATA_RETURN_IF_ERROR(tokens_.ExpectName("endif"));
      STRATA_RETURN_IF_ERROR(EndOfTag());
    }
    block.push_back({line, std::move(node)});
    return absl::OkStatus();
  }

  absl::Status ForTag(uint32_t line, Block& block) {
    For node;
    STRATA_ASSIGN_OR_RETURN(node.target, TargetList(false));
    STRATA_RETURN_IF_ERROR(tokens_.ExpectName("in"));
    STRATA_ASSIGN_OR_RETURN(node.iterable, expressions_.TupleOrExpression(false, "recursive"));
    if (tokens_.SkipName("if")) {
      STRATA_ASSIGN_OR_RETURN(node.filter, expressions_.Expression());
    }
    node.recursive = tokens_.SkipName("recursive");
    STRATA_RETURN_IF_ERROR(EndOfTag());
    ++loops_;
    STRATA_ASSIGN_OR_RETURN(node.body, Statements({"else", "endfor"}));
    --loops_;
    if (tokens_.SkipName("else")) {
      STRATA_ASSIGN_OR_RETURN(node.otherwise, Body("endfor"));
    } else {
      STRATA_RETURN_IF_ERROR(tokens_.ExpectName("endfor"));
      STRATA_RETURN_IF_ERROR(EndOfTag());
    }
    block.push_back({line, std::move(node)});
    return absl::OkStatus();
  }

  absl::Status SetTag(uint32_t line, Block& block) {
    STRATA_ASSIGN_OR_RETURN(Target target, TargetList(true));
    if (tokens_.SkipOperator("=")) {
      STRATA_ASSIGN_OR_RETURN(ExprPtr value, expressions_.TupleOrExpression());
      block.push_back({line, Set{std::move(target), std::move(value)}});
      return EndOfTag();
    }
    SetBlock node{std::move(target), nullptr, {}};
    if (tokens_.SkipOperator("|")) {
      STRATA_ASSIGN_OR_RETURN(node.filter, expressions_.FilterChain());
    }
    STRATA_ASSIGN_OR_RETURN(node.body, Body("endset"));
    block.push_back({line, std::move(node)});
    return absl::OkStatus();
  }

  absl::Status MacroTag(uint32_t line, Block& block) {
    auto macro = std::make_unique<MacroDef>();
    STRATA_ASSIGN_OR_RETURN(macro->name, NameToken());
    STRATA_RETURN_IF_ERROR(Signature(*macro));
    STRATA_RETURN_IF_ERROR(MacroBody(*macro, "endmacro"));
    block.push_back({line, Macro{std::move(macro)}});
    return absl::OkStatus();
  }

  absl::Status CallTag(uint32_t line, Block& block) {
    CallBlock node{nullptr, std::make_unique<MacroDef>()};
    node.caller->name = "caller";
    if (tokens_.IsOperator("(")) STRATA_RETURN_IF_ERROR(Signature(*node.caller));
    STRATA_ASSIGN_OR_RETURN(node.call, expressions_.Expression());
    if (!std::holds_alternative<Call>(node.call->node)) {
      return tokens_.Error("{% call %} needs a call, such as {% call name(arguments) %}");
    }
    STRATA_RETURN_IF_ERROR(MacroBody(*node.caller, "endcall"));
    block.push_back({line, std::move(node)});
    return absl::OkStatus();
  }

  absl::Status MacroBody(MacroDef& macro, std::string_view end) {
    // A loop around the definition cannot be left from inside of it.
    const int outer_loops = std::exchange(loops_, 0);
    expressions_.macros().push_back(&macro);
    STRATA_ASSIGN_OR_RETURN(macro.body, Body(end));
    expressions_.macros().pop_back();
    loops_ = outer_loops;
    return absl::OkStatus();
  }

  absl::Status Signature(MacroDef& macro) {
    STRATA_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
    while (!tokens_.IsOperator(")")) {
      if (!macro.parameters.empty()) STRATA_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      STRATA_ASSIGN_OR_RETURN(std::string name, NameToken());
      macro.parameters.push_back(std::move(name));
      if (tokens_.SkipOperator("=")) {
        STRATA_ASSIGN_OR_RETURN(ExprPtr value, expressions_.Expression());
        macro.defaults.push_back(std::move(value));
      } else if (!macro.defaults.empty()) {
        return tokens_.Error("parameter without a default after one with a default");
      }
    }
    tokens_.Next();
    return absl::OkStatus();
  }

  absl::Status FilterTag(uint32_t line, Block& block) {
    STRATA_ASSIGN_OR_RETURN(ExprPtr filter, expressions_.FilterChain());
    STRATA_ASSIGN_OR_RETURN(Block body, Body("endfilter"));
    block.push_back({line, FilterBlock{std::move(filter), std::move(body)}});
    return absl::OkStatus();
  }

  absl::Status WithTag(uint32_t line, Block& block) {
    With node;
    while (!tokens_.Is(TokenKind::kBlockEnd)) {
      if (!node.assignments.empty()) STRATA_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      STRATA_ASSIGN_OR_RETURN(Target target, OneTarget(false));
      STRATA_RETURN_IF_ERROR(tokens_.ExpectOperator("="));
      STRATA_ASSIGN_OR_RETURN(ExprPtr value, expressions_.Expression());
      node.assignments.emplace_back(std::move(target), std::move(value));
    }
    STRATA_ASSIGN_OR_RETURN(node.body, Body("endwith"));
    block.push_back({line, std::move(node)});
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> NameToken() {
    if (!tokens_.Is(TokenKind::kName)) return tokens_.Unexpected("a name");
    std::string name = tokens_.current().text;
    tokens_.Next();
    return name;
  }

  // "a", "a, b", "a, (b, c)", and "ns.a" where allowed.
  absl::StatusOr<Target> TargetList(bool with_attribute) {
    STRATA_ASSIGN_OR_RETURN(Target first, OneTarget(with_attribute));
    if (!tokens_.IsOperator(",")) return first;
    Target all;
    all.targets.push_back(std::move(first));
    while (tokens_.SkipOperator(",")) {
      if (!tokens_.Is(TokenKind::kName) && !tokens_.IsOperator("(")) break;
      if (tokens_.IsName("in")) break;
      STRATA_ASSIGN_OR_RETURN(Target next, OneTarget(false));
      all.targets.push_back(std::move(next));
    }
    return all;
  }

  absl::StatusOr<Target> OneTarget(bool with_attribute) {
    const NestingScope nesting(depth_);
    if (depth_ > kMaxTreeDepth) return tokens_.Error("assignment targets nested too deeply");
    if (tokens_.SkipOperator("(")) {
      STRATA_ASSIGN_OR_RETURN(Target inner, TargetList(false));
      STRATA_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
      return inner;
    }
    Target target;
    STRATA_ASSIGN_OR_RETURN(target.name, NameToken());
    for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (target.name == reserved) {
        return tokens_.Error(absl::StrCat("cannot assign to '", target.name, "'"));
      }
    }
    if (with_attribute && tokens_.SkipOperator(".")) {
      STRATA_ASSIGN_OR_RETURN(target.attribute, NameToken());
    }
    return target;
  }

  TokenStream tokens_;
  uint32_t depth_ = 0;
  int loops_ = 0;
  ExpressionParser expressions_;
};

}  // namespace

absl::StatusOr<Block> ParseTemplate(std::string_view source) {
  STRATA_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return StatementParser(std::move(tokens)).Run();
}

}  // namespace strata::gateway::jinja
