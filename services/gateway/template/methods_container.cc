// Methods of Python's list, tuple and dict. Those that change a container act on the rendering's
// own copy of the request's data, so they are allowed although Jinja's immutable sandbox forbids
// them.
#include <algorithm>

#include "common/base/status.h"
#include "services/gateway/template/builtin_tables.h"
#include "services/gateway/template/operators.h"

namespace strata::gateway::jinja {
namespace {

// ---- lists ----

absl::StatusOr<Value> Append(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("append", args, {"item"}, 1));
  self.list().items.push_back(bound[0]);
  runtime.heap().Count(sizeof(Value));
  return Value();
}

absl::StatusOr<Value> Extend(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("extend", args, {"iterable"}, 1));
  STRATA_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, bound[0]));
  std::vector<Value>& own = self.list().items;
  own.insert(own.end(), items.begin(), items.end());
  runtime.heap().Count(items.size() * sizeof(Value));
  return Value();
}

absl::StatusOr<Value> Insert(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("insert", args, {"index", "item"}, 2));
  STRATA_ASSIGN_OR_RETURN(int64_t index, bound.Int(0, 0));
  std::vector<Value>& items = self.list().items;
  STRATA_RETURN_IF_ERROR(runtime.Scan(items.size() * sizeof(Value)));
  const int64_t length = static_cast<int64_t>(items.size());
  index = std::clamp<int64_t>(index < 0 ? index + length : index, 0, length);
  items.insert(items.begin() + index, bound[1]);
  runtime.heap().Count(sizeof(Value));
  return Value();
}

absl::StatusOr<Value> Pop(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("pop", args, {"index"}));
  STRATA_ASSIGN_OR_RETURN(int64_t index, bound.Int(0, -1));
  std::vector<Value>& items = self.list().items;
  STRATA_RETURN_IF_ERROR(runtime.Scan(items.size() * sizeof(Value)));
  const int64_t length = static_cast<int64_t>(items.size());
  if (index < 0) index += length;
  if (index < 0 || index >= length) {
    return absl::FailedPreconditionError("pop: index out of range");
  }
  Value item = items[static_cast<size_t>(index)];
  items.erase(items.begin() + index);
  return item;
}

absl::StatusOr<std::optional<size_t>> Position(Runtime& runtime, const Value& self,
                                               const Value& wanted) {
  const std::vector<Value>& items = self.list().items;
  for (size_t i = 0; i < items.size(); ++i) {
    STRATA_ASSIGN_OR_RETURN(const bool same, Equal(runtime, items[i], wanted));
    if (same) return std::optional<size_t>(i);
  }
  return std::optional<size_t>();
}

absl::StatusOr<Value> Index(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("index", args, {"item"}, 1));
  STRATA_ASSIGN_OR_RETURN(const std::optional<size_t> found, Position(runtime, self, bound[0]));
  if (!found) return absl::FailedPreconditionError("index: the value is not in the list");
  return Value::Int(static_cast<int64_t>(*found));
}

absl::StatusOr<Value> Remove(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("remove", args, {"item"}, 1));
  STRATA_ASSIGN_OR_RETURN(const std::optional<size_t> found, Position(runtime, self, bound[0]));
  if (!found) return absl::FailedPreconditionError("remove: the value is not in the list");
  self.list().items.erase(self.list().items.begin() + static_cast<ptrdiff_t>(*found));
  return Value();
}

absl::StatusOr<Value> Count(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("count", args, {"item"}, 1));
  int64_t count = 0;
  for (const Value& item : self.list().items) {
    STRATA_ASSIGN_OR_RETURN(const bool same, Equal(runtime, item, bound[0]));
    count += same ? 1 : 0;
  }
  return Value::Int(count);
}

absl::StatusOr<Value> ReverseInPlace(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  STRATA_RETURN_IF_ERROR(runtime.Work(self.list().items.size()));
  std::reverse(self.list().items.begin(), self.list().items.end());
  return Value();
}

absl::StatusOr<Value> CopyList(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  STRATA_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, self));
  return runtime.heap().NewList(std::move(items));
}

absl::StatusOr<Value> ClearList(Runtime&, const Value& self, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  self.list().items.clear();
  return Value();
}

// ---- mappings ----

absl::StatusOr<Value> Get(Runtime&, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("get", args, {"key", "default"}, 1));
  STRATA_ASSIGN_OR_RETURN(const Value* found, self.dict().Find(bound[0]));
  if (found != nullptr) return *found;
  return bound.Has(1) ? bound[1] : Value();
}

absl::StatusOr<Value> Keys(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  STRATA_ASSIGN_OR_RETURN(std::vector<Value> keys, Iterate(runtime, self));
  return runtime.heap().NewList(std::move(keys));
}

absl::StatusOr<Value> Values(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  STRATA_RETURN_IF_ERROR(runtime.Room(self.dict().size() * sizeof(Value)));
  std::vector<Value> values;
  for (const Dict::Entry& entry : self.dict().entries()) values.push_back(entry.value);
  return runtime.heap().NewList(std::move(values));
}

absl::StatusOr<Value> Items(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  return FindFilter("items")(runtime, self, args);
}

absl::StatusOr<Value> Update(Runtime& runtime, const Value& self, const Args& args) {
  for (const Value& source : args.positional) {
    if (!source.IsDict()) return TypeError("update needs a mapping");
    const Dict copy = source.dict();  // the source may be the mapping itself
    STRATA_RETURN_IF_ERROR(runtime.Room(copy.size() * sizeof(Dict::Entry)));
    for (const Dict::Entry& entry : copy.entries()) {
      STRATA_RETURN_IF_ERROR(self.dict().Set(entry.key, entry.value));
    }
    runtime.heap().Count(copy.size() * sizeof(Dict::Entry));
  }
  for (const auto& [name, value] : args.named) {
    self.dict().SetText(runtime.heap().NewTrusted(std::string(name)), value);
    runtime.heap().Count(sizeof(Dict::Entry));
  }
  return Value();
}

absl::StatusOr<Value> PopKey(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("pop", args, {"key", "default"}, 1));
  STRATA_RETURN_IF_ERROR(runtime.Work(self.dict().size()));
  STRATA_ASSIGN_OR_RETURN(const Value* found, self.dict().Find(bound[0]));
  if (found == nullptr) {
    if (bound.Has(1)) return bound[1];
    return absl::FailedPreconditionError("pop: no such key");
  }
  Value value = *found;
  STRATA_RETURN_IF_ERROR(self.dict().Erase(bound[0]).status());
  return value;
}

absl::StatusOr<Value> SetDefault(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("setdefault", args, {"key", "default"}, 1));
  STRATA_ASSIGN_OR_RETURN(const Value* found, self.dict().Find(bound[0]));
  if (found != nullptr) return *found;
  Value value = bound.Has(1) ? bound[1] : Value();
  STRATA_RETURN_IF_ERROR(self.dict().Set(bound[0], value));
  runtime.heap().Count(sizeof(Dict::Entry));
  return value;
}

absl::StatusOr<Value> CopyDict(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  STRATA_RETURN_IF_ERROR(runtime.Room(self.dict().size() * sizeof(Dict::Entry)));
  Dict* copy = runtime.heap().NewDict();
  *copy = self.dict();
  runtime.heap().Count(copy->size() * sizeof(Dict::Entry));
  return Value(copy);
}

absl::StatusOr<Value> ClearDict(Runtime&, const Value& self, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  self.dict().Clear();
  return Value();
}

constexpr Named<FilterFunction> kList[] = {
    {"append", Append},   {"extend", Extend}, {"insert", Insert},
    {"pop", Pop},         {"index", Index},   {"remove", Remove},
    {"count", Count},     {"copy", CopyList}, {"reverse", ReverseInPlace},
    {"clear", ClearList},
};

constexpr Named<FilterFunction> kTuple[] = {{"index", Index}, {"count", Count}};

constexpr Named<FilterFunction> kDict[] = {
    {"get", Get},         {"keys", Keys},  {"values", Values},         {"items", Items},
    {"update", Update},   {"pop", PopKey}, {"setdefault", SetDefault}, {"copy", CopyDict},
    {"clear", ClearDict},
};

}  // namespace

std::span<const Named<FilterFunction>> ListMethods() { return kList; }
std::span<const Named<FilterFunction>> TupleMethods() { return kTuple; }
std::span<const Named<FilterFunction>> DictMethods() { return kDict; }

}  // namespace strata::gateway::jinja
