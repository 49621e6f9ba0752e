// Early return on errors for code that uses absl::Status, and the bridge between std::string_view
// (our interfaces) and absl::string_view (a different type in Debian's Abseil build).
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace strata {

// Debian builds Abseil with its own string_view; it neither converts to nor from the standard one.
inline absl::string_view A(std::string_view s) { return {s.data(), s.size()}; }
inline std::string_view S(absl::string_view s) { return {s.data(), s.size()}; }

// Prefixes the message of a failed status with where or what it was about; keeps the code.
inline absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(A(context), ": ", status.message()));
}

// The status of the last failed system call on `what`: "cannot open 'x': No such file or
// directory".
absl::Status ErrnoStatus(int error_number, std::string_view what);

}  // namespace strata

// NOLINTBEGIN(bugprone-macro-parentheses): an argument that declares a variable cannot have them.
// Returning early is the one thing a function cannot do for its caller; hence macros.
#define STRATA_RETURN_IF_ERROR(expr)                                                       \
  do {                                                                                     \
    if (absl::Status strata_status_ = (expr); !strata_status_.ok()) return strata_status_; \
  } while (false)

#define STRATA_CONCAT_INNER_(a, b) a##b
#define STRATA_CONCAT_(a, b) STRATA_CONCAT_INNER_(a, b)
#define STRATA_ASSIGN_OR_RETURN(lhs, expr) \
  STRATA_ASSIGN_OR_RETURN_IMPL_(STRATA_CONCAT_(strata_status_or_, __LINE__), lhs, expr)
#define STRATA_ASSIGN_OR_RETURN_IMPL_(var, lhs, expr) \
  auto var = (expr);                                  \
  if (!var.ok()) return std::move(var).status();      \
  lhs = *std::move(var)
// NOLINTEND(bugprone-macro-parentheses)
