// Statements and scopes; expressions are in evaluator.cc.
#include "services/gateway/template/interpreter.h"

#include "common/base/status.h"
#include "services/gateway/template/callables.h"
#include "services/gateway/template/format.h"
#include "services/gateway/template/operators.h"

namespace strata::gateway::jinja {
namespace {

// Replaces a variable for a block of code and puts the old value back.
template <typename T>
class Swap {
 public:
  Swap(T& variable, T value)
      : variable_(variable), old_(std::exchange(variable, std::move(value))) {}
  ~Swap() { variable_ = std::move(old_); }
  Swap(const Swap&) = delete;
  Swap& operator=(const Swap&) = delete;

 private:
  T& variable_;
  T old_;
};

}  // namespace

void Scope::Set(std::string_view name, Value value) {
  for (auto& [key, current] : names) {
    if (key == name) {
      current = std::move(value);
      return;
    }
  }
  names.emplace_back(name, std::move(value));
}

const Value* Scope::Find(std::string_view name) const {
  for (const auto& [key, value] : names) {
    if (key == name) return &value;
  }
  return nullptr;
}

Interpreter::Interpreter(Runtime& runtime, const Dict& variables)
    : runtime_(runtime), variables_(variables), scope_(std::make_shared<Scope>(nullptr)) {}

absl::StatusOr<Text> Interpreter::Run(const Block& block) {
  Text out;
  const Swap<Text*> capture(out_, &out);
  STRATA_RETURN_IF_ERROR(Exec(block).status());
  return out;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Exec(const Block& block) {
  const DepthScope depth(runtime_);
  STRATA_RETURN_IF_ERROR(depth.status());
  for (const Stmt& statement : block) {
    STRATA_RETURN_IF_ERROR(At(statement.line, runtime_.Work(1)));
    const absl::StatusOr<Flow> flow =
        std::visit([this](const auto& node) { return Run(node); }, statement.node);
    if (!flow.ok()) return At(statement.line, flow.status());
    if (*flow != Flow::kNext) return *flow;
  }
  return Flow::kNext;
}

absl::Status Interpreter::At(uint32_t line, absl::Status status) {
  if (!status.ok() && error_line_ == 0) error_line_ = line;
  return status;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecScoped(const Block& block) {
  const Swap<std::shared_ptr<Scope>> inner(scope_, std::make_shared<Scope>(scope_));
  return Exec(block);
}

absl::StatusOr<Value> Interpreter::Capture(const Block& block) {
  Text out;
  const Swap<Text*> capture(out_, &out);
  STRATA_RETURN_IF_ERROR(ExecScoped(block).status());
  return runtime_.heap().NewText(std::move(out));
}

absl::Status Interpreter::CheckOutput() const {
  if (out_->size() <= runtime_.limits().max_output_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the template prints more than ", runtime_.limits().max_output_bytes, " bytes"));
}

absl::Status Interpreter::Emit(const Value& value) {
  STRATA_RETURN_IF_ERROR(AppendStr(runtime_, value, *out_));
  return CheckOutput();
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const Output& node) {
  STRATA_RETURN_IF_ERROR(runtime_.Scan(node.text.size()));
  out_->Append(node.text);
  STRATA_RETURN_IF_ERROR(CheckOutput());
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const Print& node) {
  STRATA_ASSIGN_OR_RETURN(const Value value, Eval(*node.value));
  STRATA_RETURN_IF_ERROR(Emit(value));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const If& node) {
  for (const auto& [condition, body] : node.branches) {
    STRATA_ASSIGN_OR_RETURN(const Value value, Eval(*condition));
    if (value.Truthy()) return Exec(body);
  }
  return Exec(node.otherwise);
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const For& node) {
  STRATA_ASSIGN_OR_RETURN(const Value iterable, Eval(*node.iterable));
  return Loop(node, iterable, 0);
}

absl::StatusOr<std::vector<Value>> Interpreter::LoopItems(const For& node, const Value& iterable) {
  STRATA_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime_, iterable));
  if (node.filter == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    const Swap<std::shared_ptr<Scope>> inner(scope_, std::make_shared<Scope>(scope_));
    STRATA_RETURN_IF_ERROR(Assign(node.target, item));
    STRATA_ASSIGN_OR_RETURN(const Value keep, Eval(*node.filter));
    if (keep.Truthy()) kept.push_back(std::move(item));
  }
  return kept;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Loop(const For& node, const Value& iterable,
                                                    int64_t depth) {
  STRATA_ASSIGN_OR_RETURN(std::vector<Value> items, LoopItems(node, iterable));
  if (items.empty()) {
    STRATA_RETURN_IF_ERROR(ExecScoped(node.otherwise).status());
    return Flow::kNext;
  }
  const Value list = runtime_.heap().NewList(std::move(items));
  const std::vector<Value>& elements = list.list().items;
  auto* loop = runtime_.heap().Own(
      std::make_unique<LoopObject>(*this, node.recursive ? &node : nullptr, scope_, list, depth));
  const Swap<std::shared_ptr<Scope>> inner(scope_, std::make_shared<Scope>(scope_));
  for (size_t i = 0; i < elements.size(); ++i) {
    STRATA_RETURN_IF_ERROR(runtime_.Work(1));
    loop->MoveTo(i);
    // Names of the last iteration are gone, unless a macro still refers to them.
    if (scope_.use_count() == 1) {
      scope_->names.clear();
    } else {
      scope_ = std::make_shared<Scope>(scope_->parent);
    }
    scope_->Set("loop", Value(loop));
    STRATA_RETURN_IF_ERROR(Assign(node.target, elements[i]));
    STRATA_ASSIGN_OR_RETURN(const Flow flow, Exec(node.body));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

absl::StatusOr<Value> Interpreter::CallLoop(const For& loop, const std::shared_ptr<Scope>& scope,
                                            const Value& iterable, int64_t depth) {
  const DepthScope nesting(runtime_);
  STRATA_RETURN_IF_ERROR(nesting.status());
  const Swap<std::shared_ptr<Scope>> inner(scope_, scope);
  Text out;
  const Swap<Text*> capture(out_, &out);
  STRATA_RETURN_IF_ERROR(Loop(loop, iterable, depth).status());
  return runtime_.heap().NewText(std::move(out));
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const Set& node) {
  STRATA_ASSIGN_OR_RETURN(const Value value, Eval(*node.value));
  STRATA_RETURN_IF_ERROR(Assign(node.target, value));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const SetBlock& node) {
  STRATA_ASSIGN_OR_RETURN(Value value, Capture(node.body));
  if (node.filter != nullptr) {
    STRATA_ASSIGN_OR_RETURN(value, ApplyFilters(*node.filter, value));
  }
  STRATA_RETURN_IF_ERROR(Assign(node.target, value));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const Macro& node) {
  const MacroDef& definition = *node.definition;
  scope_->Set(definition.name,
              Value(runtime_.heap().Own(std::make_unique<MacroObject>(*this, definition, scope_))));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const CallBlock& node) {
  const Value caller(
      runtime_.heap().Own(std::make_unique<MacroObject>(*this, *node.caller, scope_)));
  STRATA_ASSIGN_OR_RETURN(const Value result, Invoke(std::get<Call>(node.call->node), &caller));
  STRATA_RETURN_IF_ERROR(Emit(result));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const FilterBlock& node) {
  STRATA_ASSIGN_OR_RETURN(const Value text, Capture(node.body));
  STRATA_ASSIGN_OR_RETURN(const Value result, ApplyFilters(*node.filter, text));
  STRATA_RETURN_IF_ERROR(Emit(result));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const With& node) {
  // All values are computed in the outer scope, then bound in the inner one.
  std::vector<Value> values;
  for (const auto& [target, expr] : node.assignments) {
    STRATA_ASSIGN_OR_RETURN(Value value, Eval(*expr));
    values.push_back(std::move(value));
  }
  const Swap<std::shared_ptr<Scope>> inner(scope_, std::make_shared<Scope>(scope_));
  for (size_t i = 0; i < values.size(); ++i) {
    STRATA_RETURN_IF_ERROR(Assign(node.assignments[i].first, values[i]));
  }
  return Exec(node.body);
}

absl::Status Interpreter::Assign(const Target& target, const Value& value) {
  if (!target.targets.empty()) {
    STRATA_ASSIGN_OR_RETURN(const std::vector<Value> parts, Iterate(runtime_, value));
    if (parts.size() != target.targets.size()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "cannot unpack ", parts.size(), " values into ", target.targets.size(), " names"));
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      STRATA_RETURN_IF_ERROR(Assign(target.targets[i], parts[i]));
    }
    return absl::OkStatus();
  }
  if (target.attribute.empty()) {
    scope_->Set(target.name, value);
    return absl::OkStatus();
  }
  const Value object = Lookup(target.name);
  if (object.IsObject() && object.object().Assign(target.attribute, value)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("cannot assign attribute '", target.attribute,
                                                    "' of '", target.name,
                                                    "': only a namespace() allows that"));
}

absl::StatusOr<Value> Interpreter::CallMacro(const MacroDef& macro,
                                             const std::shared_ptr<Scope>& scope,
                                             const Args& args) {
  const DepthScope nesting(runtime_);
  STRATA_RETURN_IF_ERROR(nesting.status());
  const Swap<std::shared_ptr<Scope>> inner(scope_, std::make_shared<Scope>(scope));
  STRATA_RETURN_IF_ERROR(BindMacroArguments(runtime_, macro, args, *scope_));
  const size_t first_default = macro.parameters.size() - macro.defaults.size();
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    if (scope_->Find(macro.parameters[i]) != nullptr) continue;
    Value value = Value::Missing(macro.parameters[i]);
    if (i >= first_default) {
      STRATA_ASSIGN_OR_RETURN(value, Eval(*macro.defaults[i - first_default]));
    }
    scope_->Set(macro.parameters[i], std::move(value));
  }
  Text out;
  const Swap<Text*> capture(out_, &out);
  STRATA_RETURN_IF_ERROR(Exec(macro.body).status());
  return runtime_.heap().NewText(std::move(out));
}

}  // namespace strata::gateway::jinja
