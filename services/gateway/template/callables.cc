#include "services/gateway/template/callables.h"

#include <algorithm>

#include "common/base/status.h"
#include "services/gateway/template/operators.h"

namespace strata::gateway::jinja {
namespace {

// loop.cycle and loop.changed.
class LoopMethod : public Object {
 public:
  LoopMethod(LoopObject& loop, bool cycle) : loop_(loop), cycle_(cycle) {}
  std::string_view TypeName() const override { return "method"; }
  bool Callable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime& runtime, const Args& args) override {
    return cycle_ ? loop_.Cycle(args) : loop_.Changed(runtime, args);
  }

 private:
  LoopObject& loop_;
  const bool cycle_;
};

}  // namespace

std::optional<Value> MacroObject::Attribute(Runtime& runtime, std::string_view name) {
  if (name == "name") return runtime.heap().NewTrusted(macro_.name);
  return std::nullopt;
}

absl::StatusOr<Value> MacroObject::Call(Runtime&, const Args& args) {
  return interpreter_.CallMacro(macro_, scope_, args);
}

absl::Status BindMacroArguments(Runtime& runtime, const MacroDef& macro, const Args& args,
                                Scope& scope) {
  const auto is_parameter = [&macro](std::string_view name) {
    return std::find(macro.parameters.begin(), macro.parameters.end(), name) !=
           macro.parameters.end();
  };
  const size_t direct = std::min(args.positional.size(), macro.parameters.size());
  for (size_t i = 0; i < direct; ++i) scope.Set(macro.parameters[i], args.positional[i]);
  if (args.positional.size() > direct && !macro.uses_varargs) {
    return absl::FailedPreconditionError(absl::StrCat("macro '", macro.name, "' takes ", direct,
                                                      " arguments, got ", args.positional.size()));
  }
  if (macro.uses_varargs) {
    std::vector<Value> rest(args.positional.begin() + static_cast<ptrdiff_t>(direct),
                            args.positional.end());
    scope.Set("varargs", runtime.heap().NewList(std::move(rest), true));
  }
  Dict* kwargs = macro.uses_kwargs ? runtime.heap().NewDict() : nullptr;
  if (macro.uses_caller) scope.Set("caller", Value::Missing("caller"));
  for (const auto& [name, value] : args.named) {
    if (is_parameter(name)) {
      if (scope.Find(name) != nullptr) {
        return absl::FailedPreconditionError(absl::StrCat(
            "macro '", macro.name, "' got several values for argument '", A(name), "'"));
      }
      scope.Set(name, value);
    } else if (name == "caller" && macro.uses_caller) {
      scope.Set("caller", value);
    } else if (kwargs != nullptr) {
      kwargs->SetText(runtime.heap().NewTrusted(std::string(name)), value);
    } else {
      return absl::FailedPreconditionError(
          absl::StrCat("macro '", macro.name, "' takes no keyword argument '", A(name), "'"));
    }
  }
  if (kwargs != nullptr) scope.Set("kwargs", Value(kwargs));
  return absl::OkStatus();
}

std::optional<Value> LoopObject::Attribute(Runtime& runtime, std::string_view name) {
  const std::vector<Value>& items = items_.list().items;
  const int64_t index = static_cast<int64_t>(index_);
  const int64_t length = static_cast<int64_t>(items.size());
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "revindex") return Value::Int(length - index);
  if (name == "revindex0") return Value::Int(length - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index == length - 1);
  if (name == "length") return Value::Int(length);
  if (name == "depth") return Value::Int(depth_ + 1);
  if (name == "depth0") return Value::Int(depth_);
  if (name == "previtem") {
    return index == 0 ? Value::Missing("previtem", TypeName()) : items[index_ - 1];
  }
  if (name == "nextitem") {
    return index + 1 == length ? Value::Missing("nextitem", TypeName()) : items[index_ + 1];
  }
  if (name == "cycle" || name == "changed") {
    return Value(runtime.heap().Own(std::make_unique<LoopMethod>(*this, name == "cycle")));
  }
  return std::nullopt;
}

absl::StatusOr<Value> LoopObject::Cycle(const Args& args) const {
  if (args.positional.empty()) return TypeError("loop.cycle needs at least one item");
  return args.positional[index_ % args.positional.size()];
}

absl::StatusOr<Value> LoopObject::Changed(Runtime& runtime, const Args& args) {
  const Value now = runtime.heap().NewList(args.positional, true);
  bool same = false;
  if (last_changed_) {
    STRATA_ASSIGN_OR_RETURN(same, Equal(runtime, *last_changed_, now));
  }
  last_changed_ = now;
  return Value::Bool(!same);
}

absl::StatusOr<Value> LoopObject::Call(Runtime&, const Args& args) {
  if (recursive_ == nullptr) {
    return TypeError("loop(...) needs a loop marked 'recursive'");
  }
  if (args.positional.size() != 1 || !args.named.empty()) {
    return TypeError("loop(...) takes one iterable");
  }
  return interpreter_.CallLoop(*recursive_, scope_, args.positional[0], depth_ + 1);
}

}  // namespace strata::gateway::jinja
