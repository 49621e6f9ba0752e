// Client channels, call contexts and status mapping. Includes gRPC headers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "strata/v1/config.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::rpc {

// A channel to "unix:/path" or "host:port" (TLS unless loopback). Connects lazily, reconnects by
// itself with a back-off of 50 ms to 1 s: daemons are restarted on the same machine, so waiting
// long would only prolong an outage. Unary calls that fail as unavailable are retried up to four
// times within their deadline.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& address,
                                                       const v1::TlsConfig& tls);

// Sets the request id (sent as metadata) and, if positive, the deadline of a call.
void PrepareCall(grpc::ClientContext& context, std::string_view request_id,
                 std::chrono::milliseconds timeout);

// The request id that a caller sent; empty if none.
std::string RequestIdOf(const grpc::ServerContextBase& context);

absl::Status FromGrpc(const grpc::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace strata::rpc
