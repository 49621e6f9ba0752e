// HTTP/1.1 server: sockets, limits and timeouts. Everything it knows of the API is a Router.
//
// One thread does all socket work and runs the handlers; a handler hands long computations to
// RunOnPool (pool.h). Behaviour:
//   - keep-alive, Content-Length and chunked request bodies, Expect: 100-continue, pipelining
//     (requests of a connection are answered one after the other);
//   - limits: 413 for bodies, 431 for headers, 408 for slow headers or bodies, 503 over the
//     connection cap; a client that takes no bytes for the write timeout is dropped;
//   - access rules (access.h) are applied before the body is read;
//   - a client that disappears is noticed while its request waits or generates (Exchange::OnGone).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "services/gateway/http/access.h"
#include "services/gateway/http/router.h"

#include "absl/status/statusor.h"

namespace strata::gateway {

struct ServerOptions {
  std::vector<std::string> listen = {"127.0.0.1:8080", "[::1]:8080"};
  bool insecure_bind = false;  // permit other than loopback addresses without API keys
  uint64_t max_body_bytes = 64 << 20;
  uint32_t max_header_bytes = 64 << 10;
  uint32_t header_timeout_ms = 10000;  // for a whole header
  uint32_t idle_timeout_ms = 60000;    // between requests of a connection
  uint32_t body_timeout_ms = 30000;    // without a byte, or at less than 1 KiB/s after that
  uint32_t write_timeout_ms = 60000;
  uint32_t max_connections = 512;
  uint32_t auth_failure_delay_ms = 250;  // slows guessing of keys
  AccessPolicy access;
  // Called for every answered request: path of its route, status, seconds. For metrics.
  std::function<void(const std::string& route, int status, double seconds)> on_done;
  std::function<void()> on_connection_refused;
};

class HttpServer {
 public:
  // Binds and starts the thread. Errors name the address: in use, not local, or not loopback while
  // no API key is set. An address whose family this machine lacks is skipped with a warning if
  // another one works.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(ServerOptions options);
  // As if by Stop(0).
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Runs handlers and everything of theirs that must not be concurrent.
  boost::asio::any_io_executor executor() const;
  // Begin to answer. Until then connections wait: handlers often need executor() to be made.
  void Serve(Router router);

  std::vector<uint16_t> ports() const;         // in the order of `listen`; for "address:0"
  std::vector<std::string> addresses() const;  // "address:port" of each, for people
  uint32_t connections() const;

  // Accepts nothing more, lets running requests finish for at most `grace_ms`, then drops them.
  void Stop(uint32_t grace_ms);

 private:
  class Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace strata::gateway
