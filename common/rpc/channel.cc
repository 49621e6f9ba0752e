#include "common/rpc/channel.h"

#include "common/base/status.h"
#include "common/rpc/address.h"
#include "common/rpc/library.h"
#include "common/rpc/tls.h"

namespace strata::rpc {
namespace {

constexpr char kRequestIdKey[] = "x-request-id";
constexpr size_t kMaxRequestIdBytes = 128;
constexpr int kMaxMessageBytes = 64 << 20;

// Numbers as in the comment of Connect().
constexpr char kServiceConfig[] = R"({
  "methodConfig": [{
    "name": [{}],
    "retryPolicy": {
      "maxAttempts": 5,
      "initialBackoff": "0.05s",
      "maxBackoff": "1s",
      "backoffMultiplier": 2,
      "retryableStatusCodes": ["UNAVAILABLE"]
    }
  }]
})";

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& address,
                                                       const v1::TlsConfig& tls) {
  KeepLibraryInitialized();
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (!tls.certificate().empty() && !address.starts_with("unix:")) {
    STRATA_ASSIGN_OR_RETURN(credentials, ClientCredentials(tls));
  } else if (!address.starts_with("unix:") && !IsLoopback(address)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "refusing to connect to ", address, " without TLS: set `tls` in the configuration"));
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetServiceConfigJSON(kServiceConfig);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // A Unix socket path is no host name: without this gRPC sends it percent-encoded and some servers
  // reject the authority.
  if (address.starts_with("unix:")) arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

void PrepareCall(grpc::ClientContext& context, std::string_view request_id,
                 std::chrono::milliseconds timeout) {
  if (!request_id.empty()) context.AddMetadata(kRequestIdKey, std::string(request_id));
  if (timeout.count() > 0) context.set_deadline(std::chrono::system_clock::now() + timeout);
}

std::string RequestIdOf(const grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  const auto it = metadata.find(kRequestIdKey);
  if (it == metadata.end()) return "";
  return std::string(it->second.data(), std::min(it->second.size(), kMaxRequestIdBytes));
}

// The numeric codes of both libraries are the same by design (google.rpc.Code).
absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      std::string(status.message()));
}

}  // namespace strata::rpc
