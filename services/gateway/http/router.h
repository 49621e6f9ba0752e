// Maps a path and a method to a handler.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "services/gateway/http/exchange.h"

namespace strata::gateway {

struct Route {
  std::string method;
  std::string path;        // exact, or ending in "/{name}": the rest of the path, slashes included
  bool is_public = false;  // answered without an API key
  Handler handler;
};

class Router {
 public:
  void Add(Route route) { routes_.push_back(std::move(route)); }

  struct Match {
    const Route* route = nullptr;  // null: see `allowed`
    std::string parameter;         // what "{name}" matched
    std::string allowed;  // methods of this path for the Allow header; empty = no such path
  };
  // HEAD is answered by GET routes.
  Match Find(std::string_view method, std::string_view path) const;

 private:
  std::vector<Route> routes_;
};

}  // namespace strata::gateway
