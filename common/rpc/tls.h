// Mutual TLS credentials from PEM files. Includes gRPC headers.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "strata/v1/config.pb.h"

#include "absl/status/statusor.h"

namespace strata::rpc {

// Both sides present a certificate signed by `client_ca`; a peer without one is refused.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(
    const v1::TlsConfig& tls);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientCredentials(
    const v1::TlsConfig& tls);

}  // namespace strata::rpc
