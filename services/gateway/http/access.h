// Who may ask: API keys, Host and Origin checks, content type. Pure functions of a request's
// headers, decided before its body is read.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/gateway/http/message.h"

#include "absl/status/statusor.h"

namespace strata::gateway {

// Named keys. Comparison takes the same time whatever the presented key shares with a stored one.
class ApiKeys {
 public:
  static constexpr size_t kMaxKeyBytes = 256;

  // "name:key" lines; blank lines and lines starting with '#' are skipped. Fails if a file can be
  // read by everybody or written by its group.
  static absl::StatusOr<ApiKeys> Load(std::span<const std::string> files);
  absl::Status Add(std::string_view name, std::string_view key);

  bool empty() const { return keys_.empty(); }
  size_t size() const { return keys_.size(); }
  // Name of the matching key.
  std::optional<std::string> Find(std::string_view presented) const;

 private:
  struct Key {
    std::string name;
    size_t length = 0;
    std::array<unsigned char, kMaxKeyBytes> padded{};
  };
  std::vector<Key> keys_;
};

struct AccessPolicy {
  ApiKeys keys;
  std::vector<std::string> allowed_hosts;    // beside localhost, IP literals and this host's name
  std::vector<std::string> allowed_origins;  // exact, e.g. "https://chat.example"
};

struct Refusal {
  ApiError error;
  bool authentication = false;  // the server delays these answers
};

// Fills request.client and request.tenant, or says why the request is refused. `is_public` routes
// need no key.
//  - Host: without keys, a name that is not ours means DNS rebinding by a web page: 403.
//  - Origin: only POST and other state-changing methods; absent or own or allowed, else 403.
//  - Content type: POST must say application/json (a browser then asks first): 415.
std::optional<Refusal> CheckAccess(const AccessPolicy& policy, bool is_public, Request& request);

// True if a page of this Origin may read our answers.
bool OriginAllowed(const AccessPolicy& policy, const Request& request);

// Headers of the answer to a CORS preflight; empty when the origin is not allowed.
Headers PreflightHeaders(const AccessPolicy& policy, const Request& request,
                         std::string_view allowed_methods);

}  // namespace strata::gateway
