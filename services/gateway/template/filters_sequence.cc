// Filters over sequences: their length, order and parts.
#include <algorithm>
#include <string>

#include "common/base/status.h"
#include "services/gateway/template/attribute_path.h"
#include "services/gateway/template/builtin_tables.h"
#include "services/gateway/template/format.h"
#include "services/gateway/template/operators.h"
#include "services/gateway/template/text_tools.h"

namespace strata::gateway::jinja {
namespace {

absl::StatusOr<Value> LengthFilter(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  STRATA_ASSIGN_OR_RETURN(const int64_t length, Length(runtime, input));
  return Value::Int(length);
}

absl::StatusOr<Value> Join(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("join", args, {"d", "attribute"}));
  Text separator;
  if (bound.Has(0)) {
    STRATA_ASSIGN_OR_RETURN(separator, ToStr(runtime, bound[0]));
  }
  const AttributePath path = AttributePath::Parse(runtime, bound.Has(1) ? &bound[1] : nullptr);
  STRATA_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) {
      STRATA_RETURN_IF_ERROR(runtime.Scan(separator.size()));
      out.Append(separator);
    }
    STRATA_ASSIGN_OR_RETURN(const Value item, path.Get(runtime, items[i], nullptr));
    STRATA_RETURN_IF_ERROR(AppendStr(runtime, item, out));
  }
  return runtime.heap().NewText(std::move(out));
}

absl::StatusOr<Value> First(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  if (input.IsString() || input.IsList()) {
    STRATA_ASSIGN_OR_RETURN(const Value item, GetItem(runtime, input, Value::Int(0)));
    return item.IsUndefined() ? Value::Missing("first item of an empty sequence") : item;
  }
  STRATA_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  return items.empty() ? Value::Missing("first item of an empty sequence") : items.front();
}

absl::StatusOr<Value> Last(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  STRATA_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  return items.empty() ? Value::Missing("last item of an empty sequence") : items.back();
}

absl::StatusOr<Value> ListFilter(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  STRATA_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  return runtime.heap().NewList(std::move(items));
}

absl::StatusOr<Value> Reverse(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  if (input.IsString()) {
    return SliceValue(runtime, input, Value(), Value(), Value::Int(-1));
  }
  STRATA_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  std::reverse(items.begin(), items.end());
  return runtime.heap().NewList(std::move(items));
}

absl::StatusOr<std::vector<Value>> Pairs(Runtime& runtime, const Value& mapping) {
  std::vector<Value> pairs;
  for (const Dict::Entry& entry : mapping.dict().entries()) {
    STRATA_RETURN_IF_ERROR(runtime.Work(1));
    pairs.push_back(runtime.heap().NewPair(entry.key, entry.value));
  }
  return pairs;
}

absl::StatusOr<Value> Items(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  if (input.IsUndefined()) return runtime.heap().NewList({});
  if (!input.IsDict()) return TypeError("Can only get item pairs from a mapping.");
  STRATA_ASSIGN_OR_RETURN(std::vector<Value> pairs, Pairs(runtime, input));
  return runtime.heap().NewList(std::move(pairs));
}

absl::StatusOr<Value> DictSort(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound,
                          Bound::Of("dictsort", args, {"case_sensitive", "by", "reverse"}));
  if (input.IsUndefined()) return UndefinedError(input.undefined());
  if (!input.IsDict()) return TypeError("dictsort: the input must be a mapping");
  bool by_value = false;
  if (bound.Has(1)) {
    const bool is_text = bound[1].IsString();
    by_value = is_text && bound[1].bytes() == "value";
    if (!by_value && !(is_text && bound[1].bytes() == "key")) {
      return TypeError("dictsort: by must be 'key' or 'value'");
    }
  }
  std::vector<Value> keys;
  for (const Dict::Entry& entry : input.dict().entries()) {
    STRATA_RETURN_IF_ERROR(runtime.Work(1));
    const Value& key = by_value ? entry.value : entry.key;
    keys.push_back(bound.Flag(0, false) ? key : FoldCase(runtime, key));
  }
  STRATA_ASSIGN_OR_RETURN(std::vector<Value> pairs, Pairs(runtime, input));
  STRATA_RETURN_IF_ERROR(SortByKeys(runtime, keys, bound.Flag(2, false), pairs));
  return runtime.heap().NewList(std::move(pairs));
}

absl::StatusOr<Value> Sort(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound,
                          Bound::Of("sort", args, {"reverse", "case_sensitive", "attribute"}));
  STRATA_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  std::vector<AttributePath> paths;
  if (bound.Has(2) && bound[2].IsString()) {  // "a,b": by a, then by b
    const std::string comma = ",";
    STRATA_ASSIGN_OR_RETURN(const std::vector<Text> names,
                            Split(runtime, bound[2].text(), &comma, -1, false));
    for (const Text& name : names) {
      const Value attribute = runtime.heap().NewText(name);
      paths.push_back(AttributePath::Parse(runtime, &attribute));
    }
  } else {
    paths.push_back(AttributePath::Parse(runtime, bound.Has(2) ? &bound[2] : nullptr));
  }
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      STRATA_ASSIGN_OR_RETURN(Value part, path.Key(runtime, item, bound.Flag(1, false)));
      key.push_back(std::move(part));
    }
    keys.push_back(runtime.heap().NewList(std::move(key)));
  }
  STRATA_RETURN_IF_ERROR(SortByKeys(runtime, keys, bound.Flag(0, false), items));
  return runtime.heap().NewList(std::move(items));
}

absl::StatusOr<Value> Unique(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound,
                          Bound::Of("unique", args, {"case_sensitive", "attribute"}));
  const AttributePath path = AttributePath::Parse(runtime, bound.Has(1) ? &bound[1] : nullptr);
  STRATA_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  Dict seen;
  std::vector<Value> kept;
  for (const Value& item : items) {
    STRATA_ASSIGN_OR_RETURN(const Value key, path.Key(runtime, item, bound.Flag(0, false)));
    const size_t before = seen.size();
    STRATA_RETURN_IF_ERROR(seen.Set(key, Value()));
    if (seen.size() != before) kept.push_back(item);
  }
  return runtime.heap().NewList(std::move(kept));
}

absl::StatusOr<Value> Extreme(Runtime& runtime, const Value& input, const Args& args, int sign) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound,
                          Bound::Of("min/max", args, {"case_sensitive", "attribute"}));
  const AttributePath path = AttributePath::Parse(runtime, bound.Has(1) ? &bound[1] : nullptr);
  STRATA_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  if (items.empty()) return Value::Missing("extreme of an empty sequence");
  Value best = items[0];
  STRATA_ASSIGN_OR_RETURN(Value best_key, path.Key(runtime, best, bound.Flag(0, false)));
  for (size_t i = 1; i < items.size(); ++i) {
    STRATA_ASSIGN_OR_RETURN(Value key, path.Key(runtime, items[i], bound.Flag(0, false)));
    STRATA_ASSIGN_OR_RETURN(const int order, Order(runtime, key, best_key));
    if (order * sign <= 0) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

absl::StatusOr<Value> Min(Runtime& runtime, const Value& input, const Args& args) {
  return Extreme(runtime, input, args, -1);
}
absl::StatusOr<Value> Max(Runtime& runtime, const Value& input, const Args& args) {
  return Extreme(runtime, input, args, 1);
}

absl::StatusOr<Value> Sum(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("sum", args, {"attribute", "start"}));
  const AttributePath path = AttributePath::Parse(runtime, bound.Has(0) ? &bound[0] : nullptr);
  STRATA_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  Value total = bound.Has(1) ? bound[1] : Value::Int(0);
  if (total.IsString()) return TypeError("sum: cannot add strings, use join");
  for (const Value& item : items) {
    STRATA_ASSIGN_OR_RETURN(const Value value, path.Get(runtime, item, nullptr));
    STRATA_ASSIGN_OR_RETURN(total, Arithmetic(runtime, BinaryOp::kAdd, total, value));
  }
  return total;
}

absl::StatusOr<Value> Batch(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound,
                          Bound::Of("batch", args, {"linecount", "fill_with"}, 1));
  STRATA_ASSIGN_OR_RETURN(const int64_t size, bound.Int(0, 1));
  if (size < 1) return TypeError("batch: linecount must be at least 1");
  STRATA_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  const bool fill = bound.Has(1) && !bound[1].IsNone();
  if (fill) STRATA_RETURN_IF_ERROR(runtime.Room(static_cast<size_t>(size) * sizeof(Value)));
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : items) {
    if (static_cast<int64_t>(row.size()) == size) {
      rows.push_back(runtime.heap().NewList(std::exchange(row, {})));
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    if (fill) row.resize(static_cast<size_t>(size), bound[1]);
    rows.push_back(runtime.heap().NewList(std::move(row)));
  }
  return runtime.heap().NewList(std::move(rows));
}

// `slices` columns of nearly equal length.
absl::StatusOr<Value> SliceFilter(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("slice", args, {"slices", "fill_with"}, 1));
  STRATA_ASSIGN_OR_RETURN(const int64_t slices, bound.Int(0, 1));
  if (slices < 1) return TypeError("slice: the number of slices must be at least 1");
  STRATA_RETURN_IF_ERROR(runtime.Work(static_cast<uint64_t>(slices)));
  STRATA_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  const int64_t length = static_cast<int64_t>(items.size());
  const int64_t longer = length % slices;
  std::vector<Value> columns;
  auto next = items.begin();
  for (int64_t i = 0; i < slices; ++i) {
    const auto end = next + length / slices + (i < longer ? 1 : 0);
    std::vector<Value> column(next, end);
    next = end;
    if (bound.Has(1) && !bound[1].IsNone() && i >= longer) column.push_back(bound[1]);
    columns.push_back(runtime.heap().NewList(std::move(column)));
  }
  return runtime.heap().NewList(std::move(columns));
}

absl::StatusOr<Value> GroupBy(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(
      const Bound bound, Bound::Of("groupby", args, {"attribute", "default", "case_sensitive"}, 1));
  const AttributePath path = AttributePath::Parse(runtime, &bound[0]);
  const Value* otherwise = bound.Has(1) && !bound[1].IsNone() ? &bound[1] : nullptr;
  STRATA_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  // Pairs of (key, item) are sorted together.
  std::vector<Value> keys;
  std::vector<Value> pairs;
  for (const Value& item : items) {
    STRATA_ASSIGN_OR_RETURN(Value key, path.Get(runtime, item, otherwise));
    if (!bound.Flag(2, false)) key = FoldCase(runtime, key);
    keys.push_back(key);
    pairs.push_back(runtime.heap().NewPair(std::move(key), item));
  }
  STRATA_RETURN_IF_ERROR(SortByKeys(runtime, keys, false, pairs));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < pairs.size();) {
    std::vector<Value> members;
    size_t end = begin;
    for (; end < pairs.size(); ++end) {
      STRATA_ASSIGN_OR_RETURN(const bool same, Equal(runtime, pairs[begin].list().items[0],
                                                     pairs[end].list().items[0]));
      if (!same) break;
      members.push_back(pairs[end].list().items[1]);
    }
    STRATA_ASSIGN_OR_RETURN(Value grouper, path.Get(runtime, members[0], otherwise));
    Value group =
        runtime.heap().NewPair(std::move(grouper), runtime.heap().NewList(std::move(members)));
    group.list().group = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return runtime.heap().NewList(std::move(groups));
}

constexpr Named<FilterFunction> kTable[] = {
    {"length", LengthFilter},
    {"count", LengthFilter},
    {"join", Join},
    {"first", First},
    {"last", Last},
    {"list", ListFilter},
    {"reverse", Reverse},
    {"items", Items},
    {"dictsort", DictSort},
    {"sort", Sort},
    {"unique", Unique},
    {"min", Min},
    {"max", Max},
    {"sum", Sum},
    {"batch", Batch},
    {"slice", SliceFilter},
    {"groupby", GroupBy},
};

}  // namespace

std::span<const Named<FilterFunction>> SequenceFilters() { return kTable; }

}  // namespace strata::gateway::jinja
