#include "services/gateway/template/builtins.h"

#include <algorithm>

#include "common/base/status.h"
#include "services/gateway/template/builtin_tables.h"
#include "services/gateway/template/operators.h"

namespace strata::gateway::jinja {
namespace {

FilterFunction Search(std::span<const Named<FilterFunction>> table, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const auto& e) { return e.name == name; });
  return found == table.end() ? nullptr : found->function;
}

}  // namespace

FilterFunction FindFilter(std::string_view name) {
  for (const auto& table : {TextFilters(), SequenceFilters(), SelectFilters(), ValueFilters()}) {
    if (const FilterFunction function = Search(table, name)) return function;
  }
  return nullptr;
}

FilterFunction FindMethod(const Value& self, std::string_view name) {
  if (self.IsString()) return Search(StringMethods(), name);
  if (self.IsDict()) return Search(DictMethods(), name);
  if (self.IsList()) return Search(self.list().tuple ? TupleMethods() : ListMethods(), name);
  return nullptr;
}

absl::StatusOr<Bound> Bound::Of(std::string_view what, const Args& args,
                                std::initializer_list<std::string_view> parameters,
                                size_t required) {
  Bound bound;
  bound.what_ = what;
  bound.names_ = parameters;
  bound.values_.resize(parameters.size(), nullptr);
  if (args.positional.size() > parameters.size()) {
    return TypeError(absl::StrCat(A(what), " takes at most ", parameters.size(), " arguments, got ",
                                  args.positional.size()));
  }
  for (size_t i = 0; i < args.positional.size(); ++i) bound.values_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto found = std::find(bound.names_.begin(), bound.names_.end(), name);
    if (found == bound.names_.end()) {
      return TypeError(absl::StrCat(A(what), " has no argument '", A(name), "'"));
    }
    const Value*& slot = bound.values_[static_cast<size_t>(found - bound.names_.begin())];
    if (slot != nullptr) {
      return TypeError(absl::StrCat(A(what), " got argument '", A(name), "' twice"));
    }
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound.values_[i] == nullptr) {
      return TypeError(absl::StrCat(A(what), " needs argument '", A(bound.names_[i]), "'"));
    }
  }
  return bound;
}

absl::Status NoArguments(const Args& args) {
  if (args.positional.empty() && args.named.empty()) return absl::OkStatus();
  return TypeError("no arguments expected here");
}

absl::StatusOr<int64_t> Bound::Int(size_t i, int64_t otherwise) const {
  if (!Has(i) || values_[i]->IsNone()) return otherwise;
  if (const std::optional<int64_t> value = values_[i]->AsInt()) return *value;
  if (values_[i]->IsUndefined()) return UndefinedError(values_[i]->undefined());
  return TypeError(absl::StrCat(A(what_), ": '", A(names_[i]), "' must be an integer, not ",
                                A(values_[i]->TypeName())));
}

}  // namespace strata::gateway::jinja
