// A gRPC server of one daemon: health, reflection, Unix socket or TCP with mutual TLS.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "strata/v1/config.pb.h"

#include "absl/status/statusor.h"

namespace grpc {
class Service;
}

namespace strata::rpc {

class Server {
 public:
  // Listens on "unix:/path" (mode 0660; a socket left over by a dead process is replaced, a second
  // living instance is refused: a lock file beside the socket decides) or "host:port". TCP needs
  // mutual TLS (`tls`) unless the host is a loopback address. The services must outlive the server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const std::string& address,
                                                       const v1::TlsConfig& tls,
                                                       std::span<grpc::Service* const> services);
  ~Server();

  // What grpc.health.v1 reports; a server starts as not serving.
  void SetServing(bool serving);
  // Port in use; 0 for a Unix socket.
  int port() const;
  // Reports not serving, lets running calls finish until the grace period ends, cancels the rest.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::rpc
