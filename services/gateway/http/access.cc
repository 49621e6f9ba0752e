#include "services/gateway/http/access.h"

#include <arpa/inet.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>

#include "common/base/status.h"

namespace strata::gateway {
namespace {

std::string Lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view Trim(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return s;
}

bool IsIpLiteral(const std::string& host) {
  in6_addr address;  // large enough for both families
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

std::string OwnHostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return {};
  return Lower(name.data());
}

// "Name:8080" -> "name", "[::1]:8080" -> "::1".
std::string HostName(std::string_view host) {
  host = Trim(host);
  if (!host.empty() && host[0] == '[') {
    const size_t close = host.find(']');
    return Lower(host.substr(1, close == std::string_view::npos ? close : close - 1));
  }
  return Lower(host.substr(0, host.rfind(':')));
}

bool HostAllowed(const AccessPolicy& policy, std::string_view header) {
  std::string host = HostName(header);
  if (!host.empty() && host.back() == '.') host.pop_back();
  if (host == "localhost" || host.ends_with(".localhost") || IsIpLiteral(host)) return true;
  if (!host.empty() && host == OwnHostName()) return true;
  return std::any_of(policy.allowed_hosts.begin(), policy.allowed_hosts.end(),
                     [&](const std::string& allowed) { return Lower(allowed) == host; });
}

std::string_view PresentedKey(const Headers& headers) {
  const std::string_view authorization = Trim(headers.Get("authorization"));
  if (authorization.size() > 7 && EqualsIgnoreCase(authorization.substr(0, 7), "bearer ")) {
    return Trim(authorization.substr(7));
  }
  if (headers.Has("x-api-key")) return Trim(headers.Get("x-api-key"));
  return Trim(headers.Get("api-key"));
}

bool IsJsonType(std::string_view content_type) {
  return EqualsIgnoreCase(Trim(content_type.substr(0, content_type.find(';'))), "application/json");
}

bool ChangesState(std::string_view method) {
  return method != "GET" && method != "HEAD" && method != "OPTIONS";
}

bool IsHeaderToken(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == ',' ||
         c == ' ';
}

absl::Status LoadFile(const std::string& path, ApiKeys* keys) {
  std::ifstream file(path);
  struct stat info {};
  if (!file || stat(path.c_str(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot read API key file '", path, "'"));
  }
  if ((info.st_mode & (S_IWGRP | S_IROTH | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("API key file '", path, "' is open to others; run: chmod 600 ", path));
  }
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string_view text = Trim(line);
    if (text.empty() || text[0] == '#') continue;
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": expected 'name:key'"));
    }
    const absl::Status added = keys->Add(Trim(text.substr(0, colon)), Trim(text.substr(colon + 1)));
    if (!added.ok()) return Annotate(added, absl::StrCat(path, ":", number));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ApiKeys> ApiKeys::Load(std::span<const std::string> files) {
  ApiKeys keys;
  for (const std::string& path : files) STRATA_RETURN_IF_ERROR(LoadFile(path, &keys));
  if (!files.empty() && keys.empty()) {
    return absl::InvalidArgumentError(
        "api_key_file is set but names no key; add a line 'name:key' or remove the setting");
  }
  return keys;
}

absl::Status ApiKeys::Add(std::string_view name, std::string_view key) {
  if (name.empty() || key.size() < 8 || key.size() > kMaxKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a key needs a name and 8 to ", kMaxKeyBytes, " characters"));
  }
  Key entry;
  entry.name = std::string(name);
  entry.length = key.size();
  std::copy(key.begin(), key.end(), entry.padded.begin());
  keys_.push_back(std::move(entry));
  return absl::OkStatus();
}

std::optional<std::string> ApiKeys::Find(std::string_view presented) const {
  std::array<unsigned char, kMaxKeyBytes> padded{};
  std::copy_n(presented.begin(), std::min(presented.size(), kMaxKeyBytes), padded.begin());
  const Key* found = nullptr;
  for (const Key& key : keys_) {
    unsigned difference = key.length == presented.size() ? 0 : 1;
    for (size_t i = 0; i < kMaxKeyBytes; ++i) difference |= key.padded[i] ^ padded[i];
    if (difference == 0) found = &key;
  }
  if (found == nullptr) return std::nullopt;
  return found->name;
}

bool OriginAllowed(const AccessPolicy& policy, const Request& request) {
  const std::string_view origin = request.headers.Get("origin");
  if (origin.empty()) return true;
  const std::string host = Lower(request.headers.Get("host"));
  if (!host.empty() && Lower(origin) == absl::StrCat("http://", host)) return true;
  return std::find(policy.allowed_origins.begin(), policy.allowed_origins.end(), origin) !=
         policy.allowed_origins.end();
}

std::optional<Refusal> CheckAccess(const AccessPolicy& policy, bool is_public, Request& request) {
  if (policy.keys.empty() && !HostAllowed(policy, request.headers.Get("host"))) {
    return Refusal{{.status = 403,
                    .message = absl::StrCat("Host '", A(request.headers.Get("host")),
                                            "' is not served here. Use localhost or an address, or "
                                            "add the name to gateway.allowed_host.")}};
  }
  if (ChangesState(request.method) && !OriginAllowed(policy, request)) {
    return Refusal{{.status = 403,
                    .message = absl::StrCat("Origin '", A(request.headers.Get("origin")),
                                            "' may not use this server. Add it to "
                                            "gateway.allowed_origin to permit it.")}};
  }
  request.client = request.peer.substr(0, request.peer.rfind(':'));
  if (!policy.keys.empty()) {
    const std::optional<std::string> name = policy.keys.Find(PresentedKey(request.headers));
    if (name) {
      request.client = absl::StrCat("key:", *name);
      // One key is one household; with several, timing must not tell one what another asked.
      if (policy.keys.size() > 1) request.tenant = *name;
    } else if (!is_public) {
      Refusal refusal{{.status = 401, .message = "", .code = "invalid_api_key"}, true};
      refusal.error.message = PresentedKey(request.headers).empty()
                                  ? "This server needs an API key. Send it as 'Authorization: "
                                    "Bearer <key>' or 'x-api-key: <key>'."
                                  : "The API key is not known to this server.";
      return refusal;
    }
  }
  if (request.method == "POST" && !IsJsonType(request.headers.Get("content-type"))) {
    return Refusal{{.status = 415,
                    .message = absl::StrCat("Content-Type must be application/json, not '",
                                            A(request.headers.Get("content-type")), "'.")}};
  }
  return std::nullopt;
}

Headers PreflightHeaders(const AccessPolicy& policy, const Request& request,
                         std::string_view allowed_methods) {
  Headers headers;
  const std::string_view origin = request.headers.Get("origin");
  if (origin.empty() || !OriginAllowed(policy, request)) return headers;
  headers.Add("Access-Control-Allow-Origin", origin);
  headers.Add("Access-Control-Allow-Methods", allowed_methods);
  // SDKs invent header names (x-stainless-*), so an allowed page may send whatever it asks for.
  std::string_view asked = request.headers.Get("access-control-request-headers");
  if (!std::all_of(asked.begin(), asked.end(), IsHeaderToken)) asked = {};
  headers.Add("Access-Control-Allow-Headers",
              asked.empty() ? "authorization, content-type, x-api-key" : asked);
  headers.Add("Access-Control-Max-Age", "600");
  if (request.headers.Get("access-control-request-private-network") == "true") {
    headers.Add("Access-Control-Allow-Private-Network", "true");
  }
  return headers;
}

}  // namespace strata::gateway
