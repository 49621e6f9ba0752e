// Filters, tests, methods and globals: the functions a template can call, looked up by name.
//
// Each is a plain function of (runtime, value, arguments). Behaviour follows Jinja 3 and Python's
// str/list/dict, except where a lazy Python generator or view would appear: those are lists here.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "services/gateway/template/value.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::gateway::jinja {

class Runtime;

using FilterFunction = absl::StatusOr<Value> (*)(Runtime&, const Value& input, const Args&);
using TestFunction = absl::StatusOr<bool> (*)(Runtime&, const Value& input, const Args&);

// A name and its function; each builtins file exports one table.
template <typename F>
struct Named {
  std::string_view name;
  F function;
};

// Null when there is none of that name.
FilterFunction FindFilter(std::string_view name);
TestFunction FindTest(std::string_view name);
// A method of Python's str, list (or tuple), dict; null when the type has none of that name.
FilterFunction FindMethod(const Value& self, std::string_view name);
// range, dict, namespace, cycler, joiner, raise_exception, strftime_now. Null when unknown.
FilterFunction FindGlobal(std::string_view name);

// Arguments sorted into parameters, as Python does it: positional ones first, then by name.
class Bound {
 public:
  // `what` names the function in messages; parameters beyond `required` may stay absent.
  static absl::StatusOr<Bound> Of(std::string_view what, const Args& args,
                                  std::initializer_list<std::string_view> parameters,
                                  size_t required = 0);

  bool Has(size_t i) const { return values_[i] != nullptr; }
  const Value& operator[](size_t i) const { return *values_[i]; }
  // The argument as a truth value, or `otherwise` when absent.
  bool Flag(size_t i, bool otherwise) const { return Has(i) ? values_[i]->Truthy() : otherwise; }
  // Absent or None -> `otherwise`; not an integer -> error.
  absl::StatusOr<int64_t> Int(size_t i, int64_t otherwise) const;

 private:
  std::string_view what_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

// An error when there are any.
absl::Status NoArguments(const Args& args);

}  // namespace strata::gateway::jinja
