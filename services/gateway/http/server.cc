#include "services/gateway/http/server.h"

#include <list>
#include <thread>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "common/base/log.h"
#include "services/gateway/http/connection.h"
#include "services/gateway/http/listen_address.h"

namespace strata::gateway {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
// Connections over the cap that still get a polite answer; beyond them the socket is just closed.
constexpr uint32_t kPoliteRefusals = 64;
}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<HttpServer::Impl> {
 public:
  explicit Impl(ServerOptions options) { shared_->options = std::move(options); }

  absl::Status Bind() {
    absl::Status last = absl::InvalidArgumentError("gateway.listen is empty");
    for (const std::string& text : shared_->options.listen) {
      STRATA_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(text));
      STRATA_RETURN_IF_ERROR(CheckListenAddress(
          address, !shared_->options.access.keys.empty() || shared_->options.insecure_bind));
      absl::Status bound = BindOne(address);
      if (!bound.ok()) {
        // Machines without IPv6 are common; the default list asks for both families.
        if (!absl::IsUnimplemented(bound)) return bound;
        LogWarning(bound.message());
        last = bound;
      }
    }
    return acceptors_.empty() ? last : absl::OkStatus();
  }

  void Start() {
    thread_ = std::thread([this] { context_.run(); });
  }

  void Serve(Router router) {
    asio::post(context_, [self = shared_from_this(), router = std::move(router)]() mutable {
      self->shared_->router = std::move(router);
      for (tcp::acceptor& acceptor : self->acceptors_) {
        asio::co_spawn(self->context_, Accept(self, acceptor), asio::detached);
      }
    });
  }

  void Stop(uint32_t grace_ms) {
    if (!thread_.joinable()) return;
    asio::co_spawn(context_, StopGently(std::chrono::milliseconds(grace_ms)), asio::detached);
    guard_.reset();
    thread_.join();
  }

  asio::any_io_executor executor() { return context_.get_executor(); }
  std::vector<uint16_t> ports() const { return ports_; }
  std::vector<std::string> addresses() const { return addresses_; }
  uint32_t connections() const { return shared_->connections; }

 private:
  absl::Status BindOne(const ListenAddress& address) {
    const tcp::endpoint endpoint(asio::ip::make_address(address.address), address.port);
    tcp::acceptor acceptor(context_);
    boost::system::error_code ec;
    acceptor.open(endpoint.protocol(), ec);
    if (ec) {
      return absl::UnimplementedError(
          absl::StrCat("not listening on ", address.text, ": ", ec.message()));
    }
    acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
    // Otherwise [::] would also take the IPv4 port, and the two of the default list would collide.
    if (endpoint.address().is_v6()) acceptor.set_option(asio::ip::v6_only(true), ec);
    acceptor.bind(endpoint, ec);
    if (!ec) acceptor.listen(tcp::acceptor::max_listen_connections, ec);
    if (ec == asio::error::address_in_use) {
      return absl::AlreadyExistsError(absl::StrCat(
          "cannot listen on ", address.text,
          ": the port is in use. Is another server running? Choose another with gateway.listen."));
    }
    if (ec) {
      const std::string message =
          absl::StrCat("cannot listen on ", address.text, ": ", ec.message());
      if (ec == boost::system::errc::address_not_available && endpoint.address().is_v6()) {
        return absl::UnimplementedError(message);
      }
      return absl::FailedPreconditionError(message);
    }
    ports_.push_back(acceptor.local_endpoint(ec).port());
    addresses_.push_back(
        absl::StrCat(address.text.substr(0, address.text.rfind(':') + 1), ports_.back()));
    acceptors_.push_back(std::move(acceptor));
    return absl::OkStatus();
  }

  static asio::awaitable<void> Accept(std::shared_ptr<Impl> self, tcp::acceptor& acceptor) {
    while (acceptor.is_open()) {
      auto [ec, socket] = co_await acceptor.async_accept(kTuple);
      if (ec == asio::error::operation_aborted) co_return;
      if (ec) {
        // Out of descriptors: wait for some to come back instead of spinning.
        LogWarning("cannot accept a connection: ", ec.message());
        asio::steady_timer timer(self->context_, std::chrono::milliseconds(100));
        co_await timer.async_wait(kTuple);
        continue;
      }
      self->Take(std::move(socket));
    }
  }

  void Take(tcp::socket socket) {
    const uint32_t cap = shared_->options.max_connections;
    if (active_.size() >= cap && shared_->options.on_connection_refused) {
      shared_->options.on_connection_refused();
    }
    if (active_.size() >= cap + kPoliteRefusals) return;  // closes the socket
    const bool refuse = active_.size() >= cap;
    auto connection = std::make_shared<Connection>(std::move(socket), shared_);
    active_.push_back(connection);
    shared_->connections = static_cast<uint32_t>(active_.size());
    const auto place = std::prev(active_.end());
    asio::co_spawn(context_, refuse ? connection->Refuse() : connection->Run(),
                   [self = shared_from_this(), place](const std::exception_ptr& failure) {
                     if (failure) LogError("a connection failed unexpectedly");
                     self->active_.erase(place);
                     self->shared_->connections = static_cast<uint32_t>(self->active_.size());
                   });
  }

  asio::awaitable<void> StopGently(std::chrono::milliseconds grace) {
    const std::shared_ptr<Impl> self = shared_from_this();
    boost::system::error_code ec;
    shared_->stopping = true;
    for (tcp::acceptor& acceptor : acceptors_) acceptor.close(ec);
    StopAll(false);
    const auto deadline = std::chrono::steady_clock::now() + grace;
    asio::steady_timer timer(context_);
    while (!active_.empty() && std::chrono::steady_clock::now() < deadline) {
      timer.expires_after(std::chrono::milliseconds(20));
      co_await timer.async_wait(kTuple);
    }
    StopAll(true);
  }

  void StopAll(bool now) {
    // A stopped connection may end at once and leave the list.
    const std::list<std::shared_ptr<Connection>> all = active_;
    for (const auto& connection : all) connection->Stop(now);
  }

  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard_{context_.get_executor()};
  std::shared_ptr<ServerShared> shared_ = std::make_shared<ServerShared>();
  std::list<tcp::acceptor> acceptors_;
  std::vector<uint16_t> ports_;
  std::vector<std::string> addresses_;
  std::list<std::shared_ptr<Connection>> active_;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(ServerOptions options) {
  auto impl = std::make_shared<Impl>(std::move(options));
  STRATA_RETURN_IF_ERROR(impl->Bind());
  impl->Start();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::~HttpServer() { Stop(0); }

asio::any_io_executor HttpServer::executor() const { return impl_->executor(); }
void HttpServer::Serve(Router router) { impl_->Serve(std::move(router)); }
std::vector<uint16_t> HttpServer::ports() const { return impl_->ports(); }
std::vector<std::string> HttpServer::addresses() const { return impl_->addresses(); }
uint32_t HttpServer::connections() const { return impl_->connections(); }
void HttpServer::Stop(uint32_t grace_ms) { impl_->Stop(grace_ms); }

}  // namespace strata::gateway
