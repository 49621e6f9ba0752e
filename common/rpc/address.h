// What an address says about who can reach it.
#pragma once

#include <string_view>

namespace strata::rpc {

// Only processes of this machine can reach these "host:port" addresses, so they need no TLS.
inline bool IsLoopback(std::string_view address) {
  return address.starts_with("127.") || address.starts_with("[::1]") ||
         address.starts_with("localhost:");
}

}  // namespace strata::rpc
