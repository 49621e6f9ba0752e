// One client connection: reads requests one after the other and lets handlers answer them. Included
// by the server's own sources only (Boost.Beast is slow to compile).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "services/gateway/http/server.h"

namespace strata::gateway {

// What connections share with their server.
struct ServerShared {
  ServerOptions options;
  Router router;
  bool serving = false;
  bool stopping = false;
  std::atomic<uint32_t> connections = 0;
};

class Connection : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<ServerShared> shared);

  // Serves until the connection ends. Keeps itself alive.
  boost::asio::awaitable<void> Run();
  // Answers 503 and closes.
  boost::asio::awaitable<void> Refuse();

  // Server is stopping: ends an idle connection; with `now` a working one too.
  void Stop(bool now);

  const Request& request() const override { return request_; }
  boost::asio::any_io_executor executor() const override;
  boost::asio::awaitable<void> Respond(Response response) override;
  boost::asio::awaitable<bool> StartStream(std::string_view content_type) override;
  boost::asio::awaitable<bool> Write(std::string_view bytes) override;
  boost::asio::awaitable<void> EndStream() override;
  bool gone() const override { return gone_; }
  void OnGone(std::function<void()> callback) override { on_gone_ = std::move(callback); }
  bool started() const override { return started_; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // False: the connection is to be closed.
  boost::asio::awaitable<bool> ServeOne();
  boost::asio::awaitable<bool> WaitForRequest();
  boost::asio::awaitable<bool> ReadHeader(Parser& parser);
  boost::asio::awaitable<bool> ReadBody(Parser& parser);
  boost::asio::awaitable<bool> RefuseBroken(boost::system::error_code ec);
  boost::asio::awaitable<void> Dispatch();
  boost::asio::awaitable<void> Preflight(const Router::Match& match);
  boost::asio::awaitable<void> CallHandler(const Route& route);
  boost::asio::awaitable<bool> WriteAll(std::string_view bytes);
  // Takes what the client still sends for a moment, so that it can read our answer before the
  // kernel resets the connection.
  boost::asio::awaitable<void> LingeringClose();
  std::string Head(int status, std::string_view content_type, const Headers& headers,
                   std::string_view framing);
  void StartWatching();
  void StopWatching();
  void Watch();
  void MarkGone();

  boost::beast::tcp_stream stream_;
  std::shared_ptr<ServerShared> shared_;
  boost::beast::flat_buffer buffer_;
  std::string peer_;

  Request request_;
  std::string route_;
  int status_ = 0;
  bool http10_ = false;
  bool keep_alive_ = true;
  bool chunked_ = false;
  bool head_only_ = false;
  bool started_ = false;
  bool working_ = false;  // a request is being read or answered
  bool gone_ = false;
  bool watching_ = false;
  std::chrono::steady_clock::time_point begun_;
  std::function<void()> on_gone_;
};

}  // namespace strata::gateway
