// Filters that convert or replace single values: default, tojson, numbers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/base/status.h"
#include "services/gateway/template/builtin_tables.h"
#include "services/gateway/template/format.h"
#include "services/gateway/template/json_values.h"
#include "services/gateway/template/numbers.h"
#include "services/gateway/template/operators.h"

namespace strata::gateway::jinja {
namespace {

constexpr int64_t kMaxIndent = 64;

absl::StatusOr<Value> Default(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound,
                          Bound::Of("default", args, {"default_value", "boolean"}));
  if (!input.IsUndefined() && !(bound.Flag(1, false) && !input.Truthy())) return input;
  return bound.Has(0) ? bound[0] : runtime.heap().NewTrusted("");
}

absl::StatusOr<Value> ToJson(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(
      const Bound bound,
      Bound::Of("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ascii = bound.Flag(0, false);
  style.sort_keys = bound.Flag(3, false);
  if (bound.Has(1) && !bound[1].IsNone()) {
    style.pretty = true;
    style.item_separator.pop_back();  // no blank at a line end
    if (bound[1].IsString()) {
      style.indent = bound[1].bytes();
    } else {
      STRATA_ASSIGN_OR_RETURN(const int64_t width, bound.Int(1, 0));
      if (width > kMaxIndent) return TypeError("tojson: indent above 64");
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (bound.Has(2) && !bound[2].IsNone()) {
    const bool pair = bound[2].IsList() && bound[2].list().items.size() == 2 &&
                      bound[2].list().items[0].IsString() && bound[2].list().items[1].IsString();
    if (!pair) return TypeError("tojson: separators must be two strings");
    style.item_separator = bound[2].list().items[0].bytes();
    style.key_separator = bound[2].list().items[1].bytes();
  }
  Text out;
  STRATA_RETURN_IF_ERROR(AppendJson(runtime, input, style, out));
  return runtime.heap().NewText(std::move(out));
}

absl::StatusOr<Value> Int(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("int", args, {"default", "base"}));
  STRATA_ASSIGN_OR_RETURN(const int64_t base, bound.Int(1, 10));
  if (input.IsUndefined()) return UndefinedError(input.undefined());
  const Value otherwise = bound.Has(0) ? bound[0] : Value::Int(0);
  if (const std::optional<int64_t> i = input.AsInt()) return Value::Int(*i);
  double number = 0;
  if (input.IsString()) {
    STRATA_RETURN_IF_ERROR(runtime.Scan(input.text().size()));
    if (const std::optional<int64_t> i = ParseInt(input.bytes(), base)) return Value::Int(*i);
    const std::optional<double> d = ParseFloat(input.bytes());
    if (!d) return otherwise;
    number = *d;
  } else if (input.IsFloat()) {
    number = input.AsDouble();
  } else {
    return otherwise;
  }
  if (std::isnan(number)) return otherwise;
  if (std::fabs(number) >= 9.2e18) {
    return absl::FailedPreconditionError("int: the number does not fit into 64 bits");
  }
  return Value::Int(static_cast<int64_t>(number));
}

absl::StatusOr<Value> Float(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("float", args, {"default"}));
  if (input.IsUndefined()) return UndefinedError(input.undefined());
  if (input.IsNumber()) return Value::Float(input.AsDouble());
  if (input.IsString()) {
    STRATA_RETURN_IF_ERROR(runtime.Scan(input.text().size()));
    if (const std::optional<double> d = ParseFloat(input.bytes())) return Value::Float(*d);
  }
  return bound.Has(0) ? bound[0] : Value::Float(0);
}

absl::StatusOr<Value> Abs(Runtime&, const Value& input, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  if (input.IsUndefined()) return UndefinedError(input.undefined());
  if (input.IsFloat()) return Value::Float(std::fabs(input.AsDouble()));
  const std::optional<int64_t> i = input.AsInt();
  if (!i) return TypeError(absl::StrCat("abs: not a number: ", A(input.TypeName())));
  return *i < 0 ? Negate(Value::Int(*i)) : Value::Int(*i);
}

// Python's round(x, digits): half to even, decided on the exact binary value.
double RoundFloat(double x, int64_t digits) {
  if (!std::isfinite(x) || digits > 300) return x;
  if (digits >= 0) {
    std::string buffer(static_cast<size_t>(digits) + 400, '\0');
    std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(digits), x);
    return std::strtod(buffer.c_str(), nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(std::min<int64_t>(-digits, 400)));
  return std::isinf(scale) ? std::copysign(0.0, x) : std::nearbyint(x / scale) * scale;
}

absl::StatusOr<Value> Round(Runtime&, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("round", args, {"precision", "method"}));
  STRATA_ASSIGN_OR_RETURN(const int64_t digits, bound.Int(0, 0));
  if (input.IsUndefined()) return UndefinedError(input.undefined());
  if (!input.IsNumber()) {
    return TypeError(absl::StrCat("round: not a number: ", A(input.TypeName())));
  }
  const bool named = bound.Has(1) && bound[1].IsString();
  const std::string_view method = named ? std::string_view(bound[1].bytes()) : "common";
  if (method == "common") {
    if (const std::optional<int64_t> i = input.AsInt(); i && digits >= 0) return Value::Int(*i);
    const double rounded = RoundFloat(input.AsDouble(), digits);
    return input.IsFloat() ? Value::Float(rounded) : Value::Int(static_cast<int64_t>(rounded));
  }
  const double scale = std::pow(10.0, static_cast<double>(std::clamp<int64_t>(digits, -300, 300)));
  const double scaled = input.AsDouble() * scale;
  if (method == "ceil") return Value::Float(std::ceil(scaled) / scale);
  if (method == "floor") return Value::Float(std::floor(scaled) / scale);
  return TypeError("round: method must be common, ceil or floor");
}

absl::StatusOr<Value> Attr(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("attr", args, {"name"}, 1));
  if (!bound[0].IsString()) return TypeError("attr: the name must be a string");
  const std::string& name = bound[0].bytes();
  // Unlike the dot, this never looks at the entries of a mapping.
  if (input.IsObject() || input.IsUndefined() || FindMethod(input, name) != nullptr) {
    return GetAttribute(runtime, input, name);
  }
  return Value::Missing(runtime.heap().Intern(name), input.TypeName());
}

constexpr Named<FilterFunction> kTable[] = {
    {"default", Default}, {"d", Default}, {"tojson", ToJson}, {"int", Int},
    {"float", Float},     {"abs", Abs},   {"round", Round},   {"attr", Attr},
};

}  // namespace

std::span<const Named<FilterFunction>> ValueFilters() { return kTable; }

}  // namespace strata::gateway::jinja
