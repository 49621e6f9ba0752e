// "address:port" of a listening socket.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace strata::gateway {

struct ListenAddress {
  std::string text;     // as configured
  std::string address;  // numeric
  uint16_t port = 0;    // 0 = any free one
  bool loopback = false;
};

// "127.0.0.1:8080", "[::1]:8080", "localhost:8080" (= 127.0.0.1). Other names are refused: what a
// name resolves to may change, the exposure of a server should not.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text);

// Refuses an address that others can reach unless `may_expose` (there are API keys, or the operator
// insists).
absl::Status CheckListenAddress(const ListenAddress& address, bool may_expose);

}  // namespace strata::gateway
