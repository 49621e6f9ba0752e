// The tests of `x is ...`.
#include <algorithm>

#include "common/base/status.h"
#include "services/gateway/template/builtins.h"
#include "services/gateway/template/format.h"
#include "services/gateway/template/operators.h"
#include "services/gateway/template/utf8.h"

namespace strata::gateway::jinja {
namespace {

// A test without arguments that only looks at the value.
template <bool (*kHolds)(const Value&)>
absl::StatusOr<bool> Simple(Runtime&, const Value& input, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  return kHolds(input);
}

bool IsDefined(const Value& v) { return !v.IsUndefined(); }
bool IsUndefined(const Value& v) { return v.IsUndefined(); }
bool IsNone(const Value& v) { return v.IsNone(); }
bool IsBoolean(const Value& v) { return v.IsBool(); }
bool IsTrue(const Value& v) { return v.IsBool() && v.AsBool(); }
bool IsFalse(const Value& v) { return v.IsBool() && !v.AsBool(); }
bool IsInteger(const Value& v) { return v.IsInt(); }
bool IsFloat(const Value& v) { return v.IsFloat(); }
bool IsNumber(const Value& v) { return v.IsNumber(); }
bool IsString(const Value& v) { return v.IsString(); }
bool IsMapping(const Value& v) { return v.IsDict(); }
// Undefined can be iterated and has a length, so Jinja counts it here.
bool IsSequence(const Value& v) {
  return v.IsString() || v.IsList() || v.IsDict() || v.IsUndefined();
}
bool IsCallable(const Value& v) {
  return v.IsUndefined() || (v.IsObject() && v.object().Callable());
}
bool IsEscaped(const Value&) { return false; }

absl::StatusOr<Value> Remainder(Runtime& runtime, const Value& input, const Value& divisor) {
  if (input.IsString()) return TypeError("not a number: 'str'");
  return Arithmetic(runtime, BinaryOp::kModulo, input, divisor);
}

template <int64_t kRemainder>
absl::StatusOr<bool> Parity(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  STRATA_ASSIGN_OR_RETURN(const Value rest, Remainder(runtime, input, Value::Int(2)));
  return Equal(runtime, rest, Value::Int(kRemainder));
}

absl::StatusOr<bool> DivisibleBy(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("divisibleby", args, {"num"}, 1));
  STRATA_ASSIGN_OR_RETURN(const Value rest, Remainder(runtime, input, bound[0]));
  return Equal(runtime, rest, Value::Int(0));
}

// At least one cased character, and none of the other case.
template <bool (*kWanted)(char32_t), bool (*kOther)(char32_t)>
absl::StatusOr<bool> Cased(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  STRATA_ASSIGN_OR_RETURN(const Text text, ToStr(runtime, input));
  bool any = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = DecodeAt(text.bytes(), i);
    if (kOther(c.value)) return false;
    any |= kWanted(c.value);
    i += c.length;
  }
  return any;
}

template <CompareOp kOp>
absl::StatusOr<bool> Comparing(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("test", args, {"other"}, 1));
  return CompareValues(runtime, kOp, input, bound[0]);
}

// Identity. Equal numbers and strings of one type count as the same object, as CPython has it for
// small ones.
absl::StatusOr<bool> SameAs(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("sameas", args, {"other"}, 1));
  const Value& other = bound[0];
  if (input.TypeName() != other.TypeName()) return false;
  if (input.IsList()) return &input.list() == &other.list();
  if (input.IsDict()) return &input.dict() == &other.dict();
  return Equal(runtime, input, other);
}

template <bool kFilter>
absl::StatusOr<bool> Exists(Runtime&, const Value& input, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  if (!input.IsString()) return false;
  return kFilter ? FindFilter(input.bytes()) != nullptr : FindTest(input.bytes()) != nullptr;
}

constexpr Named<TestFunction> kTable[] = {
    {"defined", Simple<IsDefined>},
    {"undefined", Simple<IsUndefined>},
    {"none", Simple<IsNone>},
    {"string", Simple<IsString>},
    {"mapping", Simple<IsMapping>},
    {"sequence", Simple<IsSequence>},
    {"iterable", Simple<IsSequence>},
    {"number", Simple<IsNumber>},
    {"integer", Simple<IsInteger>},
    {"float", Simple<IsFloat>},
    {"boolean", Simple<IsBoolean>},
    {"true", Simple<IsTrue>},
    {"false", Simple<IsFalse>},
    {"callable", Simple<IsCallable>},
    {"escaped", Simple<IsEscaped>},
    {"odd", Parity<1>},
    {"even", Parity<0>},
    {"divisibleby", DivisibleBy},
    {"lower", Cased<IsLower, IsUpper>},
    {"upper", Cased<IsUpper, IsLower>},
    {"in", Comparing<CompareOp::kIn>},
    {"eq", Comparing<CompareOp::kEq>},
    {"equalto", Comparing<CompareOp::kEq>},
    {"==", Comparing<CompareOp::kEq>},
    {"ne", Comparing<CompareOp::kNe>},
    {"!=", Comparing<CompareOp::kNe>},
    {"lt", Comparing<CompareOp::kLt>},
    {"lessthan", Comparing<CompareOp::kLt>},
    {"<", Comparing<CompareOp::kLt>},
    {"le", Comparing<CompareOp::kLe>},
    {"<=", Comparing<CompareOp::kLe>},
    {"gt", Comparing<CompareOp::kGt>},
    {"greaterthan", Comparing<CompareOp::kGt>},
    {">", Comparing<CompareOp::kGt>},
    {"ge", Comparing<CompareOp::kGe>},
    {">=", Comparing<CompareOp::kGe>},
    {"sameas", SameAs},
    {"filter", Exists<true>},
    {"test", Exists<false>},
};

}  // namespace

TestFunction FindTest(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTable), std::end(kTable),
                                   [&](const auto& entry) { return entry.name == name; });
  return found == std::end(kTable) ? nullptr : found->function;
}

}  // namespace strata::gateway::jinja
