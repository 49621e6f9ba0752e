// A small blocking HTTP/1.1 client for our own gateway.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::cli {

struct HttpResponse {
  int status = 0;
  std::string body;
};

// `address` is "host:port" ("[::1]:8080" for IPv6). Errors name the address.
absl::StatusOr<HttpResponse> HttpGet(const std::string& address, const std::string& path);

// Whether the gateway there serves: its /health says 200.
bool IsHealthy(const std::string& address);
// Waits for that, at most a minute. DeadlineExceeded names the address.
absl::Status AwaitHealthy(const std::string& address);

// Posts JSON and hands over each server-sent event's data as it comes. `on_event` returns false to
// close the connection, which cancels the request. With a status other than 200 the body is
// returned and no event delivered.
absl::StatusOr<HttpResponse> HttpPostStream(const std::string& address, const std::string& path,
                                            const std::string& api_key, std::string_view json,
                                            const std::function<bool(std::string_view)>& on_event);

}  // namespace strata::cli
