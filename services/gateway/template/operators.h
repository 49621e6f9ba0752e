// What the operators of the language do to values, following Python.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "services/gateway/template/ast.h"
#include "services/gateway/template/runtime.h"
#include "services/gateway/template/value.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::gateway::jinja {

// "'x' is undefined" or "'dict object' has no attribute 'x'".
absl::Status UndefinedError(const Undefined& undefined);
absl::Status TypeError(std::string_view message);

absl::StatusOr<Value> Arithmetic(Runtime& runtime, BinaryOp op, const Value& a, const Value& b);
absl::StatusOr<Value> Negate(const Value& a);

absl::StatusOr<bool> Equal(Runtime& runtime, const Value& a, const Value& b, int depth = 0);
// Negative, zero or positive; an error for values without an order.
absl::StatusOr<int> Order(Runtime& runtime, const Value& a, const Value& b, int depth = 0);
absl::StatusOr<bool> CompareValues(Runtime& runtime, CompareOp op, const Value& a, const Value& b);
absl::StatusOr<bool> Contains(Runtime& runtime, const Value& container, const Value& item);

// object.name: a method or attribute of the type first, then an entry of a mapping.
absl::StatusOr<Value> GetAttribute(Runtime& runtime, const Value& object, std::string_view name);
// object[key]: an entry first, then an attribute.
absl::StatusOr<Value> GetItem(Runtime& runtime, const Value& object, const Value& key);
absl::StatusOr<Value> SliceValue(Runtime& runtime, const Value& object, const Value& start,
                                 const Value& stop, const Value& step);

// The elements a for loop would see: items, keys, characters; nothing for undefined.
absl::StatusOr<std::vector<Value>> Iterate(Runtime& runtime, const Value& value);
absl::StatusOr<int64_t> Length(Runtime& runtime, const Value& value);

}  // namespace strata::gateway::jinja
