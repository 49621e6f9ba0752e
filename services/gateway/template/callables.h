// The objects of the language: macros, the loop variable, namespaces, global functions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "services/gateway/template/ast.h"
#include "services/gateway/template/builtins.h"
#include "services/gateway/template/interpreter.h"
#include "services/gateway/template/value.h"

namespace strata::gateway::jinja {

// {% macro %} and the body of {% call %}, with the scope they were defined in.
class MacroObject : public Object {
 public:
  MacroObject(Interpreter& interpreter, const MacroDef& macro, std::shared_ptr<Scope> scope)
      : interpreter_(interpreter), macro_(macro), scope_(std::move(scope)) {}
  std::string_view TypeName() const override { return "Macro"; }
  bool Callable() const override { return true; }
  std::optional<Value> Attribute(Runtime& runtime, std::string_view name) override;
  absl::StatusOr<Value> Call(Runtime& runtime, const Args& args) override;

 private:
  Interpreter& interpreter_;
  const MacroDef& macro_;
  const std::shared_ptr<Scope> scope_;
};

// Puts the arguments of a macro call into its scope: parameters that were given, varargs, kwargs,
// caller. Parameters that were not given stay absent.
absl::Status BindMacroArguments(Runtime& runtime, const MacroDef& macro, const Args& args,
                                Scope& scope);

// `loop` inside {% for %}.
class LoopObject : public Object {
 public:
  // `recursive` is the loop itself when loop(...) may be called, else null.
  LoopObject(Interpreter& interpreter, const For* recursive, std::shared_ptr<Scope> scope,
             Value items, int64_t depth)
      : interpreter_(interpreter),
        recursive_(recursive),
        scope_(std::move(scope)),
        items_(std::move(items)),
        depth_(depth) {}
  void MoveTo(size_t index) { index_ = index; }
  std::string_view TypeName() const override { return "LoopContext"; }
  bool Callable() const override { return recursive_ != nullptr; }
  std::optional<Value> Attribute(Runtime& runtime, std::string_view name) override;
  absl::StatusOr<Value> Call(Runtime& runtime, const Args& args) override;
  absl::StatusOr<Value> Cycle(const Args& args) const;
  absl::StatusOr<Value> Changed(Runtime& runtime, const Args& args);

 private:
  Interpreter& interpreter_;
  const For* const recursive_;
  const std::shared_ptr<Scope> scope_;
  const Value items_;
  const int64_t depth_;
  size_t index_ = 0;
  std::optional<Value> last_changed_;
};

// A function such as range, as a value.
class GlobalFunction : public Object {
 public:
  explicit GlobalFunction(FilterFunction function) : function_(function) {}
  std::string_view TypeName() const override { return "function"; }
  bool Callable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime& runtime, const Args& args) override {
    return function_(runtime, Value(), args);
  }

 private:
  const FilterFunction function_;
};

}  // namespace strata::gateway::jinja
