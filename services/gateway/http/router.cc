#include "services/gateway/http/router.h"

#include <optional>

namespace strata::gateway {
namespace {

// The parameter ("" for exact routes) if `path` belongs to `pattern`.
std::optional<std::string> MatchPath(std::string_view pattern, std::string_view path) {
  const size_t brace = pattern.find('{');
  if (brace == std::string_view::npos) {
    if (pattern == path) return std::string();
    return std::nullopt;
  }
  const std::string_view prefix = pattern.substr(0, brace);
  if (path.size() <= prefix.size() || path.substr(0, prefix.size()) != prefix) return std::nullopt;
  return std::string(path.substr(prefix.size()));
}

}  // namespace

Router::Match Router::Find(std::string_view method, std::string_view path) const {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  Match match;
  for (const Route& route : routes_) {
    std::optional<std::string> parameter = MatchPath(route.path, path);
    if (!parameter) continue;
    if (route.method == wanted) {
      match.route = &route;
      match.parameter = *std::move(parameter);
      return match;
    }
    if (!match.allowed.empty()) match.allowed += ", ";
    match.allowed += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  if (!match.allowed.empty()) match.allowed += ", OPTIONS";
  return match;
}

}  // namespace strata::gateway
