// Test only: Python's jinja2 as an independent implementation.
#pragma once

#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "absl/status/statusor.h"

namespace strata::gateway {

struct OracleRequest {
  std::string source;
  boost::json::object variables;
};

struct OracleAnswer {
  bool ok = false;
  std::string text;  // rendering, or the error message
  bool raised = false;
};

// Seconds since 1970 that strftime_now shows in the oracle, in UTC.
inline constexpr int64_t kOracleNow = 1'790'000'000;

// Renders all requests in one Python process. Unavailable when Python or jinja2 is missing.
absl::StatusOr<std::vector<OracleAnswer>> AskJinja(const std::vector<OracleRequest>& requests);

}  // namespace strata::gateway
