// The parsed template: statements and expressions as plain structs, one variant each.
// Immutable after parsing and shared by concurrent renderings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "services/gateway/template/builtins.h"
#include "services/gateway/template/value.h"

namespace strata::gateway::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Block = std::vector<Stmt>;

// ---- expressions ----

struct Constant {
  Value value;
};
struct NameRef {
  std::string name;
};
struct ListLiteral {  // [a, b] and (a, b)
  std::vector<ExprPtr> items;
  bool tuple = false;
};
struct DictLiteral {
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
};
enum class UnaryOp { kNegate, kPlus, kNot };
struct Unary {
  UnaryOp op;
  ExprPtr operand;
};
enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct Binary {
  BinaryOp op;
  ExprPtr left;
  ExprPtr right;
};
struct Logic {  // and, or: gives one of the operands
  bool is_and;
  ExprPtr left;
  ExprPtr right;
};
struct Concat {  // a ~ b ~ c
  std::vector<ExprPtr> parts;
};
enum class CompareOp { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };
struct Compare {  // a < b < c: each operand evaluated once
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct Conditional {  // a if c else b
  ExprPtr condition;
  ExprPtr then;
  ExprPtr otherwise;  // may be null: undefined
};
struct Attribute {  // a.name
  ExprPtr object;
  std::string name;
};
struct Subscript {  // a[index]
  ExprPtr object;
  ExprPtr index;
};
struct Slice {  // a[start:stop:step], each part may be null
  ExprPtr object;
  ExprPtr start;
  ExprPtr stop;
  ExprPtr step;
};
struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr spread;        // *args
  ExprPtr named_spread;  // **kwargs
};
struct Call {
  ExprPtr callee;
  CallArgs args;
};
struct Filter {
  ExprPtr input;  // null in {% filter %} and block set: the captured text
  std::string name;
  FilterFunction function;  // null when unknown: an error only if it is reached
  CallArgs args;
};
struct Test {  // x is name(args)
  ExprPtr input;
  std::string name;
  TestFunction function;  // null when unknown
  CallArgs args;
  bool negated;
};

struct Expr {
  uint32_t line;
  uint32_t depth;  // longest path down the tree; bounded by the parser
  std::variant<Constant, NameRef, ListLiteral, DictLiteral, Unary, Binary, Logic, Concat, Compare,
               Conditional, Attribute, Subscript, Slice, Call, Filter, Test>
      node;
};

// ---- statements ----

// What a value is assigned to: a name, `object.attribute`, or several of them.
struct Target {
  std::string name;
  std::string attribute;        // empty unless `name.attribute`
  std::vector<Target> targets;  // unpacking when not empty
};

struct Output {  // template text
  Text text;
};
struct Print {  // {{ expr }}
  ExprPtr value;
};
struct If {
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExprPtr iterable;
  ExprPtr filter;  // may be null
  Block body;
  Block otherwise;
  bool recursive;
};
struct Set {
  Target target;
  ExprPtr value;
};
struct SetBlock {
  Target target;
  ExprPtr filter;  // chain of Filter nodes ending in a null input; null for none
  Block body;
};
struct MacroDef {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Block body;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};
struct Macro {
  std::unique_ptr<MacroDef> definition;
};
struct CallBlock {
  ExprPtr call;
  std::unique_ptr<MacroDef> caller;
};
struct FilterBlock {
  ExprPtr filter;
  Block body;
};
struct With {  // {% with %}; also {% generation %} with no assignment: only a scope
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Block body;
};
struct Break {};
struct Continue {};

struct Stmt {
  uint32_t line;
  std::variant<Output, Print, If, For, Set, SetBlock, Macro, CallBlock, FilterBlock, With, Break,
               Continue>
      node;
};

}  // namespace strata::gateway::jinja
