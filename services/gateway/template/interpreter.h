// Runs a parsed template: walks the tree, keeps the scopes, collects the output.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "services/gateway/template/ast.h"
#include "services/gateway/template/runtime.h"
#include "services/gateway/template/value.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::gateway::jinja {

// Names assigned in one {% for %} iteration, macro call, capture or the template itself. {% if %}
// makes no scope. A name is looked up from the inside out, assigned in the innermost scope.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
  void Set(std::string_view name, Value value);
  const Value* Find(std::string_view name) const;  // in this scope only

  std::vector<std::pair<std::string_view, Value>> names;
  std::shared_ptr<Scope> parent;
};

class LoopObject;

class Interpreter {
 public:
  // `variables` must live on the runtime's heap. Both must outlive the interpreter.
  Interpreter(Runtime& runtime, const Dict& variables);

  absl::StatusOr<Text> Run(const Block& block);
  // Line of the statement or expression that failed first; 0 if none did.
  uint32_t error_line() const { return error_line_; }

  // Called back by macro and loop objects.
  absl::StatusOr<Value> CallMacro(const MacroDef& macro, const std::shared_ptr<Scope>& scope,
                                  const Args& args);
  absl::StatusOr<Value> CallLoop(const For& loop, const std::shared_ptr<Scope>& scope,
                                 const Value& iterable, int64_t depth);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  absl::StatusOr<Flow> Exec(const Block& block);
  absl::StatusOr<Flow> Run(const Output& node);
  absl::StatusOr<Flow> Run(const Print& node);
  absl::StatusOr<Flow> Run(const If& node);
  absl::StatusOr<Flow> Run(const For& node);
  absl::StatusOr<Flow> Run(const Set& node);
  absl::StatusOr<Flow> Run(const SetBlock& node);
  absl::StatusOr<Flow> Run(const Macro& node);
  absl::StatusOr<Flow> Run(const CallBlock& node);
  absl::StatusOr<Flow> Run(const FilterBlock& node);
  absl::StatusOr<Flow> Run(const With& node);
  absl::StatusOr<Flow> Run(const Break&) { return Flow::kBreak; }
  absl::StatusOr<Flow> Run(const Continue&) { return Flow::kContinue; }
  absl::StatusOr<Flow> Loop(const For& node, const Value& iterable, int64_t depth);
  absl::StatusOr<std::vector<Value>> LoopItems(const For& node, const Value& iterable);
  absl::StatusOr<Flow> ExecScoped(const Block& block);
  // What `block` prints, in a scope of its own.
  absl::StatusOr<Value> Capture(const Block& block);

  absl::StatusOr<Value> Eval(const Expr& expr);
  absl::StatusOr<Value> Compute(const Constant& node) { return node.value; }
  absl::StatusOr<Value> Compute(const NameRef& node) { return Lookup(node.name); }
  absl::StatusOr<Value> Compute(const ListLiteral& node);
  absl::StatusOr<Value> Compute(const DictLiteral& node);
  absl::StatusOr<Value> Compute(const Unary& node);
  absl::StatusOr<Value> Compute(const Binary& node);
  absl::StatusOr<Value> Compute(const Logic& node);
  absl::StatusOr<Value> Compute(const Concat& node);
  absl::StatusOr<Value> Compute(const Compare& node);
  absl::StatusOr<Value> Compute(const Conditional& node);
  absl::StatusOr<Value> Compute(const Attribute& node);
  absl::StatusOr<Value> Compute(const Subscript& node);
  absl::StatusOr<Value> Compute(const Slice& node);
  absl::StatusOr<Value> Compute(const Call& node) { return Invoke(node, nullptr); }
  absl::StatusOr<Value> Compute(const Filter& node);
  absl::StatusOr<Value> Compute(const Test& node);
  // `caller` is passed on as the argument of that name unless null.
  absl::StatusOr<Value> Invoke(const Call& node, const Value* caller);
  absl::StatusOr<Value> Optional(const ExprPtr& expr);  // None when null
  absl::StatusOr<Args> Evaluate(const CallArgs& args);
  // Runs the chain of filters over `input`, which stands at its null end.
  absl::StatusOr<Value> ApplyFilters(const Expr& chain, const Value& input);

  Value Lookup(std::string_view name);
  // Passes `status` on; remembers the line of the first failure.
  absl::Status At(uint32_t line, absl::Status status);
  absl::Status Assign(const Target& target, const Value& value);
  absl::Status Emit(const Value& value);
  absl::Status CheckOutput() const;

  Runtime& runtime_;
  const Dict& variables_;
  std::shared_ptr<Scope> scope_;
  std::vector<std::pair<std::string_view, Value>> globals_;  // those already used
  Text* out_ = nullptr;
  const Value* filter_input_ = nullptr;  // of the innermost {% filter %} being applied
  uint32_t error_line_ = 0;
};

}  // namespace strata::gateway::jinja
