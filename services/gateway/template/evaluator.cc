// Expressions.
#include <memory>

#include "common/base/status.h"
#include "services/gateway/template/callables.h"
#include "services/gateway/template/format.h"
#include "services/gateway/template/interpreter.h"
#include "services/gateway/template/operators.h"

namespace strata::gateway::jinja {

absl::StatusOr<Value> Interpreter::Eval(const Expr& expr) {
  const DepthScope depth(runtime_);
  STRATA_RETURN_IF_ERROR(At(expr.line, depth.status()));
  STRATA_RETURN_IF_ERROR(At(expr.line, runtime_.Work(1)));
  absl::StatusOr<Value> value =
      std::visit([this](const auto& node) { return Compute(node); }, expr.node);
  if (!value.ok()) return At(expr.line, value.status());
  return value;
}

Value Interpreter::Lookup(std::string_view name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    if (const Value* found = scope->Find(name)) return *found;
  }
  if (const Value* found = variables_.Find(name)) return *found;
  for (const auto& [key, value] : globals_) {
    if (key == name) return value;
  }
  if (const FilterFunction function = FindGlobal(name)) {
    globals_.emplace_back(name,
                          Value(runtime_.heap().Own(std::make_unique<GlobalFunction>(function))));
    return globals_.back().second;
  }
  return Value::Missing(name);
}

absl::StatusOr<Value> Interpreter::Compute(const ListLiteral& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExprPtr& item : node.items) {
    STRATA_ASSIGN_OR_RETURN(Value value, Eval(*item));
    items.push_back(std::move(value));
  }
  return runtime_.heap().NewList(std::move(items), node.tuple);
}

absl::StatusOr<Value> Interpreter::Compute(const DictLiteral& node) {
  Dict* dict = runtime_.heap().NewDict();
  for (const auto& [key_expr, value_expr] : node.items) {
    STRATA_ASSIGN_OR_RETURN(Value key, Eval(*key_expr));
    STRATA_ASSIGN_OR_RETURN(Value value, Eval(*value_expr));
    STRATA_RETURN_IF_ERROR(dict->Set(std::move(key), std::move(value)));
  }
  runtime_.heap().Count(dict->size() * sizeof(Dict::Entry));
  return Value(dict);
}

absl::StatusOr<Value> Interpreter::Compute(const Unary& node) {
  STRATA_ASSIGN_OR_RETURN(const Value operand, Eval(*node.operand));
  if (node.op == UnaryOp::kNot) return Value::Bool(!operand.Truthy());
  if (node.op == UnaryOp::kNegate) return Negate(operand);
  if (operand.IsNumber()) {
    return operand.IsBool() ? Value::Int(*operand.AsInt()) : operand;
  }
  if (operand.IsUndefined()) return UndefinedError(operand.undefined());
  return TypeError(absl::StrCat("bad operand type for unary +: '", A(operand.TypeName()), "'"));
}

absl::StatusOr<Value> Interpreter::Compute(const Binary& node) {
  STRATA_ASSIGN_OR_RETURN(const Value left, Eval(*node.left));
  STRATA_ASSIGN_OR_RETURN(const Value right, Eval(*node.right));
  return Arithmetic(runtime_, node.op, left, right);
}

absl::StatusOr<Value> Interpreter::Compute(const Logic& node) {
  STRATA_ASSIGN_OR_RETURN(Value left, Eval(*node.left));
  if (left.Truthy() != node.is_and) return left;
  return Eval(*node.right);
}

absl::StatusOr<Value> Interpreter::Compute(const Concat& node) {
  Text out;
  for (const ExprPtr& part : node.parts) {
    STRATA_ASSIGN_OR_RETURN(const Value value, Eval(*part));
    STRATA_RETURN_IF_ERROR(AppendStr(runtime_, value, out));
  }
  return runtime_.heap().NewText(std::move(out));
}

absl::StatusOr<Value> Interpreter::Compute(const Compare& node) {
  STRATA_ASSIGN_OR_RETURN(Value left, Eval(*node.first));
  for (const auto& [op, operand] : node.rest) {
    STRATA_ASSIGN_OR_RETURN(Value right, Eval(*operand));
    STRATA_ASSIGN_OR_RETURN(const bool holds, CompareValues(runtime_, op, left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

absl::StatusOr<Value> Interpreter::Compute(const Conditional& node) {
  STRATA_ASSIGN_OR_RETURN(const Value condition, Eval(*node.condition));
  if (condition.Truthy()) return Eval(*node.then);
  if (node.otherwise != nullptr) return Eval(*node.otherwise);
  return Value::Missing("the inline if-expression without an else");
}

absl::StatusOr<Value> Interpreter::Compute(const Attribute& node) {
  STRATA_ASSIGN_OR_RETURN(const Value object, Eval(*node.object));
  return GetAttribute(runtime_, object, node.name);
}

absl::StatusOr<Value> Interpreter::Compute(const Subscript& node) {
  STRATA_ASSIGN_OR_RETURN(const Value object, Eval(*node.object));
  STRATA_ASSIGN_OR_RETURN(const Value index, Eval(*node.index));
  return GetItem(runtime_, object, index);
}

absl::StatusOr<Value> Interpreter::Optional(const ExprPtr& expr) {
  if (expr == nullptr) return Value();
  return Eval(*expr);
}

absl::StatusOr<Value> Interpreter::Compute(const Slice& node) {
  STRATA_ASSIGN_OR_RETURN(const Value object, Eval(*node.object));
  STRATA_ASSIGN_OR_RETURN(const Value start, Optional(node.start));
  STRATA_ASSIGN_OR_RETURN(const Value stop, Optional(node.stop));
  STRATA_ASSIGN_OR_RETURN(const Value step, Optional(node.step));
  return SliceValue(runtime_, object, start, stop, step);
}

absl::StatusOr<Args> Interpreter::Evaluate(const CallArgs& args) {
  Args values;
  values.positional.reserve(args.positional.size());
  for (const ExprPtr& expr : args.positional) {
    STRATA_ASSIGN_OR_RETURN(Value value, Eval(*expr));
    values.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : args.named) {
    STRATA_ASSIGN_OR_RETURN(Value value, Eval(*expr));
    values.named.emplace_back(name, std::move(value));
  }
  if (args.spread != nullptr) {
    STRATA_ASSIGN_OR_RETURN(const Value more, Eval(*args.spread));
    STRATA_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime_, more));
    values.positional.insert(values.positional.end(), items.begin(), items.end());
  }
  if (args.named_spread != nullptr) {
    STRATA_ASSIGN_OR_RETURN(const Value more, Eval(*args.named_spread));
    if (!more.IsDict()) return TypeError("argument after ** must be a mapping");
    for (const Dict::Entry& entry : more.dict().entries()) {
      if (!entry.key.IsString()) return TypeError("keywords must be strings");
      values.named.emplace_back(runtime_.heap().Intern(entry.key.bytes()), entry.value);
    }
  }
  return values;
}

absl::StatusOr<Value> Interpreter::Invoke(const Call& node, const Value* caller) {
  Value callee;
  const auto* attribute = std::get_if<Attribute>(&node.callee->node);
  FilterFunction method = nullptr;
  Value self;
  if (attribute != nullptr) {  // the common case of a method, without an object for it
    STRATA_ASSIGN_OR_RETURN(self, Eval(*attribute->object));
    method = FindMethod(self, attribute->name);
    if (method == nullptr) {
      STRATA_ASSIGN_OR_RETURN(callee, GetAttribute(runtime_, self, attribute->name));
    }
  } else {
    STRATA_ASSIGN_OR_RETURN(callee, Eval(*node.callee));
  }
  STRATA_ASSIGN_OR_RETURN(Args args, Evaluate(node.args));
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  if (method != nullptr) return method(runtime_, self, args);
  if (callee.IsObject()) return callee.object().Call(runtime_, args);
  if (callee.IsUndefined()) return UndefinedError(callee.undefined());
  return TypeError(absl::StrCat("'", A(callee.TypeName()), "' object is not callable"));
}

absl::StatusOr<Value> Interpreter::Compute(const Filter& node) {
  Value input;
  if (node.input != nullptr) {
    STRATA_ASSIGN_OR_RETURN(input, Eval(*node.input));
  } else {
    input = *filter_input_;
  }
  if (node.function == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("no filter named '", node.name, "'"));
  }
  STRATA_ASSIGN_OR_RETURN(const Args args, Evaluate(node.args));
  return node.function(runtime_, input, args);
}

absl::StatusOr<Value> Interpreter::ApplyFilters(const Expr& chain, const Value& input) {
  const Value* outer = std::exchange(filter_input_, &input);
  absl::StatusOr<Value> result = Eval(chain);
  filter_input_ = outer;
  return result;
}

absl::StatusOr<Value> Interpreter::Compute(const Test& node) {
  STRATA_ASSIGN_OR_RETURN(const Value input, Eval(*node.input));
  if (node.function == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("no test named '", node.name, "'"));
  }
  STRATA_ASSIGN_OR_RETURN(const Args args, Evaluate(node.args));
  STRATA_ASSIGN_OR_RETURN(const bool holds, node.function(runtime_, input, args));
  return Value::Bool(holds != node.negated);
}

}  // namespace strata::gateway::jinja
