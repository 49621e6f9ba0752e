#include "services/gateway/template/operators.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/status.h"
#include "services/gateway/template/format.h"
#include "services/gateway/template/utf8.h"

namespace strata::gateway::jinja {
namespace {

absl::Status NoOperator(std::string_view op, const Value& a, const Value& b) {
  if (a.IsUndefined()) return UndefinedError(a.undefined());
  if (b.IsUndefined()) return UndefinedError(b.undefined());
  return TypeError(absl::StrCat("unsupported operand types for ", A(op), ": '", A(a.TypeName()),
                                "' and '", A(b.TypeName()), "'"));
}

absl::Status Overflow() {
  return absl::FailedPreconditionError("integer result does not fit into 64 bits");
}
absl::Status ZeroDivision() { return absl::FailedPreconditionError("division by zero"); }

std::string_view Symbol(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "+";
    case BinaryOp::kSubtract:
      return "-";
    case BinaryOp::kMultiply:
      return "*";
    case BinaryOp::kDivide:
      return "/";
    case BinaryOp::kFloorDivide:
      return "//";
    case BinaryOp::kModulo:
      return "%";
    case BinaryOp::kPower:
      return "**";
  }
  return "?";
}

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

// Python's float modulo: the result has the sign of the divisor.
double FloorModulo(double a, double b) {
  const double r = std::fmod(a, b);
  if (r != 0) return (r < 0) != (b < 0) ? r + b : r;
  return std::copysign(0.0, b);
}

absl::StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return ZeroDivision();
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value::Int(result);
}

absl::StatusOr<Value> IntegerArithmetic(BinaryOp op, int64_t a, int64_t b) {
  int64_t r = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &r)) return Overflow();
      return Value::Int(r);
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(a, b, &r)) return Overflow();
      return Value::Int(r);
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(a, b, &r)) return Overflow();
      return Value::Int(r);
    case BinaryOp::kDivide:
      if (b == 0) return ZeroDivision();
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDivide:
      if (b == 0) return ZeroDivision();
      if (b == -1) return IntegerArithmetic(BinaryOp::kSubtract, 0, a);
      return Value::Int(FloorDivide(a, b));
    case BinaryOp::kModulo:
      if (b == 0) return ZeroDivision();
      if (b == -1) return Value::Int(0);
      return Value::Int(a - FloorDivide(a, b) * b);
    case BinaryOp::kPower:
      return IntegerPower(a, b);
  }
  return Overflow();
}

absl::StatusOr<Value> FloatArithmetic(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(a + b);
    case BinaryOp::kSubtract:
      return Value::Float(a - b);
    case BinaryOp::kMultiply:
      return Value::Float(a * b);
    case BinaryOp::kDivide:
      if (b == 0) return ZeroDivision();
      return Value::Float(a / b);
    case BinaryOp::kFloorDivide: {
      if (b == 0) return ZeroDivision();
      const double q = (a - FloorModulo(a, b)) / b;
      double floored = std::floor(q);
      if (q - floored > 0.5) floored += 1.0;
      return Value::Float(floored);
    }
    case BinaryOp::kModulo:
      if (b == 0) return ZeroDivision();
      return Value::Float(FloorModulo(a, b));
    case BinaryOp::kPower:
      if (a == 0 && b < 0) return ZeroDivision();
      if (a < 0 && b != std::floor(b)) {
        return absl::FailedPreconditionError("power of a negative number is complex");
      }
      return Value::Float(std::pow(a, b));
  }
  return Overflow();
}

absl::StatusOr<Value> Repeat(Runtime& runtime, const Value& sequence, int64_t times) {
  const size_t n = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (sequence.IsString()) {
    const Text& text = sequence.text();
    size_t bytes = 0;
    if (__builtin_mul_overflow(text.size(), n, &bytes)) bytes = SIZE_MAX;
    STRATA_RETURN_IF_ERROR(runtime.Room(bytes));
    Text out;
    if (!text.empty()) {
      for (size_t i = 0; i < n; ++i) out.Append(text);
    }
    return runtime.heap().NewText(std::move(out));
  }
  const List& list = sequence.list();
  size_t bytes = 0;
  if (__builtin_mul_overflow(list.items.size() * sizeof(Value), n, &bytes)) bytes = SIZE_MAX;
  STRATA_RETURN_IF_ERROR(runtime.Room(bytes));
  std::vector<Value> items;
  if (!list.items.empty()) {
    items.reserve(list.items.size() * n);
    for (size_t i = 0; i < n; ++i) {
      items.insert(items.end(), list.items.begin(), list.items.end());
    }
  }
  return runtime.heap().NewList(std::move(items), list.tuple);
}

absl::StatusOr<Value> Concatenate(Runtime& runtime, const Value& a, const Value& b) {
  if (a.IsString()) {
    STRATA_RETURN_IF_ERROR(runtime.Room(a.text().size() + b.text().size()));
    Text out = a.text();
    out.Append(b.text());
    return runtime.heap().NewText(std::move(out));
  }
  const std::vector<Value>& left = a.list().items;
  const std::vector<Value>& right = b.list().items;
  STRATA_RETURN_IF_ERROR(runtime.Room((left.size() + right.size()) * sizeof(Value)));
  std::vector<Value> items = left;
  items.insert(items.end(), right.begin(), right.end());
  return runtime.heap().NewList(std::move(items), a.list().tuple);
}

absl::Status TooDeep() {
  return absl::ResourceExhaustedError(
      absl::StrCat("a value is nested deeper than ", kMaxValueDepth, " levels"));
}

int Sign(int64_t a, int64_t b) { return a < b ? -1 : a > b ? 1 : 0; }

}  // namespace

absl::Status UndefinedError(const Undefined& undefined) {
  if (undefined.owner.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("'", A(undefined.name), "' is undefined"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("'", A(undefined.owner), " object' has no attribute '", A(undefined.name), "'"));
}

absl::Status TypeError(std::string_view message) {
  return absl::FailedPreconditionError(A(message));
}

absl::StatusOr<Value> Arithmetic(Runtime& runtime, BinaryOp op, const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    const std::optional<int64_t> i = a.AsInt();
    const std::optional<int64_t> j = b.AsInt();
    if (i && j) return IntegerArithmetic(op, *i, *j);
    return FloatArithmetic(op, a.AsDouble(), b.AsDouble());
  }
  if (op == BinaryOp::kModulo && a.IsString()) return PercentFormat(runtime, a, b);
  if (op == BinaryOp::kAdd) {
    const bool lists = a.IsList() && b.IsList() && a.list().tuple == b.list().tuple;
    if ((a.IsString() && b.IsString()) || lists) return Concatenate(runtime, a, b);
  }
  if (op == BinaryOp::kMultiply) {
    if ((a.IsString() || a.IsList()) && b.AsInt()) return Repeat(runtime, a, *b.AsInt());
    if ((b.IsString() || b.IsList()) && a.AsInt()) return Repeat(runtime, b, *a.AsInt());
  }
  return NoOperator(Symbol(op), a, b);
}

absl::StatusOr<Value> Negate(const Value& a) {
  if (a.IsFloat()) return Value::Float(-a.AsDouble());
  if (const std::optional<int64_t> i = a.AsInt()) {
    return IntegerArithmetic(BinaryOp::kSubtract, 0, *i);
  }
  if (a.IsUndefined()) return UndefinedError(a.undefined());
  return TypeError(absl::StrCat("bad operand type for unary -: '", A(a.TypeName()), "'"));
}

absl::StatusOr<bool> Equal(Runtime& runtime, const Value& a, const Value& b, int depth) {
  if (depth > kMaxValueDepth) return TooDeep();
  STRATA_RETURN_IF_ERROR(runtime.Work(1));
  if (a.IsNumber() && b.IsNumber()) {
    const std::optional<int64_t> i = a.AsInt();
    const std::optional<int64_t> j = b.AsInt();
    if (i && j) return *i == *j;
    return a.AsDouble() == b.AsDouble();
  }
  if (a.IsString() && b.IsString()) {
    if (a.text().size() != b.text().size()) return false;
    STRATA_RETURN_IF_ERROR(runtime.Scan(a.text().size()));
    return a.bytes() == b.bytes();
  }
  if (a.IsNone() || b.IsNone()) return a.IsNone() && b.IsNone();
  if (a.IsUndefined() || b.IsUndefined()) return a.IsUndefined() && b.IsUndefined();
  if (a.IsList() && b.IsList()) {
    const List& x = a.list();
    const List& y = b.list();
    if (&x == &y) return true;
    if (x.tuple != y.tuple || x.items.size() != y.items.size()) return false;
    for (size_t i = 0; i < x.items.size(); ++i) {
      STRATA_ASSIGN_OR_RETURN(const bool same, Equal(runtime, x.items[i], y.items[i], depth + 1));
      if (!same) return false;
    }
    return true;
  }
  if (a.IsDict() && b.IsDict()) {
    const Dict& x = a.dict();
    const Dict& y = b.dict();
    if (&x == &y) return true;
    if (x.size() != y.size()) return false;
    for (const Dict::Entry& entry : x.entries()) {
      STRATA_ASSIGN_OR_RETURN(const Value* other, y.Find(entry.key));
      if (other == nullptr) return false;
      STRATA_ASSIGN_OR_RETURN(const bool same, Equal(runtime, entry.value, *other, depth + 1));
      if (!same) return false;
    }
    return true;
  }
  return a.IsObject() && b.IsObject() && &a.object() == &b.object();
}

absl::StatusOr<int> Order(Runtime& runtime, const Value& a, const Value& b, int depth) {
  if (depth > kMaxValueDepth) return TooDeep();
  STRATA_RETURN_IF_ERROR(runtime.Work(1));
  if (a.IsNumber() && b.IsNumber()) {
    const std::optional<int64_t> i = a.AsInt();
    const std::optional<int64_t> j = b.AsInt();
    if (i && j) return Sign(*i, *j);
    const double x = a.AsDouble();
    const double y = b.AsDouble();
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (a.IsString() && b.IsString()) {
    STRATA_RETURN_IF_ERROR(runtime.Scan(std::min(a.text().size(), b.text().size())));
    // Bytes of UTF-8 sort as their code points do.
    const int order = a.bytes().compare(b.bytes());
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.IsList() && b.IsList() && a.list().tuple == b.list().tuple) {
    const std::vector<Value>& x = a.list().items;
    const std::vector<Value>& y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      STRATA_ASSIGN_OR_RETURN(const bool same, Equal(runtime, x[i], y[i], depth + 1));
      if (!same) return Order(runtime, x[i], y[i], depth + 1);
    }
    return Sign(static_cast<int64_t>(x.size()), static_cast<int64_t>(y.size()));
  }
  return NoOperator("<", a, b);
}

absl::StatusOr<bool> CompareValues(Runtime& runtime, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEq:
      return Equal(runtime, a, b);
    case CompareOp::kNe: {
      STRATA_ASSIGN_OR_RETURN(const bool same, Equal(runtime, a, b));
      return !same;
    }
    case CompareOp::kIn:
      return Contains(runtime, b, a);
    case CompareOp::kNotIn: {
      STRATA_ASSIGN_OR_RETURN(const bool inside, Contains(runtime, b, a));
      return !inside;
    }
    default:
      break;
  }
  // NaN has no order with anything: every comparison is false.
  if ((a.IsFloat() && std::isnan(a.AsDouble())) || (b.IsFloat() && std::isnan(b.AsDouble()))) {
    if (a.IsNumber() && b.IsNumber()) return false;
  }
  STRATA_ASSIGN_OR_RETURN(const int order, Order(runtime, a, b));
  switch (op) {
    case CompareOp::kLt:
      return order < 0;
    case CompareOp::kLe:
      return order <= 0;
    case CompareOp::kGt:
      return order > 0;
    default:
      return order >= 0;
  }
}

absl::StatusOr<bool> Contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.IsString()) {
    if (item.IsUndefined()) return UndefinedError(item.undefined());
    if (!item.IsString()) {
      return TypeError(
          absl::StrCat("'in <string>' requires string as left operand, not ", A(item.TypeName())));
    }
    STRATA_RETURN_IF_ERROR(runtime.Scan(container.text().size()));
    return FindBytes(container.bytes(), item.bytes(), 0) != std::string::npos;
  }
  if (container.IsDict()) {
    STRATA_ASSIGN_OR_RETURN(const Value* found, container.dict().Find(item));
    return found != nullptr;
  }
  if (container.IsList()) {
    for (const Value& candidate : container.list().items) {
      STRATA_ASSIGN_OR_RETURN(const bool same, Equal(runtime, candidate, item));
      if (same) return true;
    }
    return false;
  }
  if (container.IsUndefined()) return false;
  return TypeError(
      absl::StrCat("argument of type '", A(container.TypeName()), "' is not iterable"));
}

}  // namespace strata::gateway::jinja
