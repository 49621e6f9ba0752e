#include "common/rpc/tls.h"

#include <fstream>
#include <sstream>

#include "common/base/status.h"

namespace strata::rpc {
namespace {

absl::StatusOr<std::string> ReadPem(const std::string& path, std::string_view field) {
  if (path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("tls.", A(field), " is not set"));
  }
  const std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file || text.str().find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("tls.", A(field), ": '", path, "' is not a readable PEM file"));
  }
  return text.str();
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(
    const v1::TlsConfig& tls) {
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  STRATA_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem(tls.client_ca(), "client_ca"));
  STRATA_ASSIGN_OR_RETURN(std::string key, ReadPem(tls.private_key(), "private_key"));
  STRATA_ASSIGN_OR_RETURN(std::string chain, ReadPem(tls.certificate(), "certificate"));
  options.pem_key_cert_pairs.push_back({std::move(key), std::move(chain)});
  return grpc::SslServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientCredentials(
    const v1::TlsConfig& tls) {
  grpc::SslCredentialsOptions options;
  STRATA_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem(tls.client_ca(), "client_ca"));
  STRATA_ASSIGN_OR_RETURN(options.pem_private_key, ReadPem(tls.private_key(), "private_key"));
  STRATA_ASSIGN_OR_RETURN(options.pem_cert_chain, ReadPem(tls.certificate(), "certificate"));
  return grpc::SslCredentials(options);
}

}  // namespace strata::rpc
