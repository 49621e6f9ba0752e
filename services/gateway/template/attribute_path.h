// The `attribute` argument of map, sort, groupby and others: "a.b.0" is a path, an integer an
// index.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "services/gateway/template/runtime.h"
#include "services/gateway/template/value.h"

#include "absl/status/statusor.h"

namespace strata::gateway::jinja {

class AttributePath {
 public:
  // Null or None: the item itself.
  static AttributePath Parse(Runtime& runtime, const Value* attribute);

  // Follows the path; a missing part gives undefined, or `otherwise` when not null.
  absl::StatusOr<Value> Get(Runtime& runtime, const Value& item, const Value* otherwise) const;
  // The same, in lower case when it is a string: how Jinja compares unless told otherwise.
  absl::StatusOr<Value> Key(Runtime& runtime, const Value& item, bool case_sensitive) const;

 private:
  std::vector<Value> parts_;
};

// value in lower case if it is a string.
Value FoldCase(Runtime& runtime, const Value& value);

// Sorts stably by keys[i] of items[i]; an error when two keys have no order.
absl::Status SortByKeys(Runtime& runtime, const std::vector<Value>& keys, bool reverse,
                        std::vector<Value>& items);

}  // namespace strata::gateway::jinja
