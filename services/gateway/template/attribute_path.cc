#include "services/gateway/template/attribute_path.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "common/base/status.h"
#include "services/gateway/template/operators.h"
#include "services/gateway/template/text_tools.h"

namespace strata::gateway::jinja {

AttributePath AttributePath::Parse(Runtime& runtime, const Value* attribute) {
  AttributePath path;
  if (attribute == nullptr || attribute->IsNone()) return path;
  if (!attribute->IsString()) {
    path.parts_.push_back(*attribute);
    return path;
  }
  std::string_view rest = attribute->bytes();
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = read.ec == std::errc() && read.ptr == part.data() + part.size() &&
                        !part.empty() && part[0] != '-';
    path.parts_.push_back(number ? Value::Int(index)
                                 : runtime.heap().NewTrusted(std::string(part)));
    if (dot == rest.size()) return path;
    rest.remove_prefix(dot + 1);
  }
}

absl::StatusOr<Value> AttributePath::Get(Runtime& runtime, const Value& item,
                                         const Value* otherwise) const {
  STRATA_RETURN_IF_ERROR(runtime.Work(1));
  Value value = item;
  for (const Value& part : parts_) {
    STRATA_ASSIGN_OR_RETURN(value, GetItem(runtime, value, part));
    if (value.IsUndefined() && otherwise != nullptr) value = *otherwise;
  }
  return value;
}

absl::StatusOr<Value> AttributePath::Key(Runtime& runtime, const Value& item,
                                         bool case_sensitive) const {
  STRATA_ASSIGN_OR_RETURN(const Value value, Get(runtime, item, nullptr));
  return case_sensitive ? value : FoldCase(runtime, value);
}

Value FoldCase(Runtime& runtime, const Value& value) {
  return value.IsString() ? runtime.heap().NewText(Lower(value.text())) : value;
}

absl::Status SortByKeys(Runtime& runtime, const std::vector<Value>& keys, bool reverse,
                        std::vector<Value>& items) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  absl::Status failure;
  // Python's reverse keeps equal items in their order, so the comparison is turned, not the result.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!failure.ok()) return false;
    const absl::StatusOr<int> compared = Order(runtime, keys[a], keys[b]);
    if (!compared.ok()) {
      failure = compared.status();
      return false;
    }
    return reverse ? *compared > 0 : *compared < 0;
  });
  STRATA_RETURN_IF_ERROR(failure);
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) sorted.push_back(items[i]);
  items = std::move(sorted);
  return absl::OkStatus();
}

}  // namespace strata::gateway::jinja
