// map, select, reject and their attribute forms.
#include "common/base/status.h"
#include "services/gateway/template/attribute_path.h"
#include "services/gateway/template/builtin_tables.h"
#include "services/gateway/template/operators.h"

namespace strata::gateway::jinja {
namespace {

// The arguments from number `from` on, for the filter or test that is applied to each item.
Args Rest(const Args& args, size_t from) {
  Args rest;
  if (args.positional.size() > from) {
    rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(from),
                           args.positional.end());
  }
  rest.named = args.named;
  return rest;
}

// A false value (none, 0, "") has no items here; any other that is not iterable is an error.
absl::StatusOr<std::vector<Value>> Items(Runtime& runtime, const Value& input) {
  if (!input.Truthy()) return std::vector<Value>();
  return Iterate(runtime, input);
}

absl::StatusOr<Value> MapAttribute(Runtime& runtime, const std::vector<Value>& items,
                                   const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("map", args, {"attribute", "default"}));
  const AttributePath path = AttributePath::Parse(runtime, &bound[0]);
  const Value* otherwise = bound.Has(1) && !bound[1].IsNone() ? &bound[1] : nullptr;
  std::vector<Value> out;
  for (const Value& item : items) {
    STRATA_ASSIGN_OR_RETURN(Value value, path.Get(runtime, item, otherwise));
    out.push_back(std::move(value));
  }
  return runtime.heap().NewList(std::move(out));
}

absl::StatusOr<Value> Map(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(runtime, input));
  if (args.positional.empty()) {
    for (const auto& [name, value] : args.named) {
      if (name == "attribute") return MapAttribute(runtime, items, args);
    }
    return TypeError("map needs a filter name or attribute=...");
  }
  if (!args.positional[0].IsString()) return TypeError("map: the filter name must be a string");
  const FilterFunction filter = FindFilter(args.positional[0].bytes());
  if (filter == nullptr) {
    return TypeError(absl::StrCat("no filter named '", args.positional[0].bytes(), "'"));
  }
  const Args rest = Rest(args, 1);
  std::vector<Value> out;
  for (const Value& item : items) {
    STRATA_RETURN_IF_ERROR(runtime.Work(1));
    STRATA_ASSIGN_OR_RETURN(Value value, filter(runtime, item, rest));
    out.push_back(std::move(value));
  }
  return runtime.heap().NewList(std::move(out));
}

// Keeps the items for which the test gives `wanted`. Without a test, truth is the test.
absl::StatusOr<Value> Choose(Runtime& runtime, const Value& input, const Args& args, bool wanted,
                             bool by_attribute) {
  STRATA_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(runtime, input));
  const size_t offset = by_attribute ? 1 : 0;
  if (args.positional.size() < offset) return TypeError("missing attribute name");
  const AttributePath path =
      AttributePath::Parse(runtime, by_attribute ? &args.positional[0] : nullptr);
  TestFunction test = nullptr;
  if (args.positional.size() > offset) {
    const Value& name = args.positional[offset];
    if (!name.IsString()) return TypeError("the test name must be a string");
    test = FindTest(name.bytes());
    if (test == nullptr) return TypeError(absl::StrCat("no test named '", name.bytes(), "'"));
  }
  const Args rest = Rest(args, offset + 1);
  std::vector<Value> out;
  for (const Value& item : items) {
    STRATA_ASSIGN_OR_RETURN(const Value value, path.Get(runtime, item, nullptr));
    bool holds = value.Truthy();
    if (test != nullptr) {
      STRATA_ASSIGN_OR_RETURN(holds, test(runtime, value, rest));
    }
    if (holds == wanted) out.push_back(item);
  }
  return runtime.heap().NewList(std::move(out));
}

template <bool kWanted, bool kByAttribute>
absl::StatusOr<Value> ChooseFilter(Runtime& runtime, const Value& input, const Args& args) {
  return Choose(runtime, input, args, kWanted, kByAttribute);
}

constexpr Named<FilterFunction> kTable[] = {
    {"map", Map},
    {"select", ChooseFilter<true, false>},
    {"reject", ChooseFilter<false, false>},
    {"selectattr", ChooseFilter<true, true>},
    {"rejectattr", ChooseFilter<false, true>},
};

}  // namespace

std::span<const Named<FilterFunction>> SelectFilters() { return kTable; }

}  // namespace strata::gateway::jinja
