#include "services/gateway/http/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>

#include "common/base/log.h"
#include "services/gateway/http/request_id.h"

namespace strata::gateway {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
// Bytes of pipelined requests that are taken while one is answered.
constexpr size_t kPipelineBytes = 64 << 10;
constexpr milliseconds kLinger{2000};

std::string_view View(beast::string_view s) { return {s.data(), s.size()}; }

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// The target without scheme and authority (the "absolute form" that proxies send).
std::string_view OriginForm(std::string_view target) {
  const size_t scheme = target.find("://");
  if (target.empty() || target[0] == '/' || scheme == std::string_view::npos) return target;
  const size_t slash = target.find('/', scheme + 3);
  return slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
}

// Responses are made in plain functions: gcc 12 destroys braced temporaries twice when they stand
// in a co_await expression.
Response ErrorWith(int status, std::string message, std::string code = "") {
  return ErrorResponse({.status = status, .message = std::move(message), .code = std::move(code)});
}

Response MethodNotAllowed(const Request& request, const std::string& allowed) {
  Response response = ErrorWith(
      405,
      absl::StrCat(request.method, " is not possible on ", request.path, "; use ", allowed, "."),
      "method_not_allowed");
  response.headers.Add("Allow", allowed);
  return response;
}

Response NotFound(const Request& request) {
  return ErrorWith(404,
                   absl::StrCat("There is nothing at ", request.method, " ", request.path, "."),
                   "not_found");
}

Response TooManyConnections() {
  return ErrorResponse({.status = 503,
                        .message = "Too many connections; try again shortly.",
                        .code = "too_many_connections",
                        .retry_after_s = 1});
}

ApiError TooLarge(uint64_t limit) {
  return {.status = 413,
          .message = absl::StrCat("The request body is larger than the limit of ", limit,
                                  " bytes (gateway.max_body_bytes)."),
          .code = "request_too_large"};
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, std::shared_ptr<ServerShared> shared)
    : stream_(std::move(socket)), shared_(std::move(shared)) {
  boost::system::error_code ec;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ec);
  stream_.socket().non_blocking(true, ec);
  const auto endpoint = stream_.socket().remote_endpoint(ec);
  if (!ec) {
    peer_ = absl::StrCat(endpoint.address().is_v6() ? "[" : "", endpoint.address().to_string(),
                         endpoint.address().is_v6() ? "]:" : ":", endpoint.port());
  }
}

asio::any_io_executor Connection::executor() const {
  return const_cast<beast::tcp_stream&>(stream_).get_executor();
}

asio::awaitable<void> Connection::Run() {
  const std::shared_ptr<Connection> self = shared_from_this();
  while (true) {
    const bool again = co_await ServeOne();
    if (!again) break;
  }
  boost::system::error_code ec;
  stream_.socket().close(ec);
}

asio::awaitable<void> Connection::Refuse() {
  const std::shared_ptr<Connection> self = shared_from_this();
  request_.id = NewRequestId();
  keep_alive_ = false;
  Response response = TooManyConnections();
  co_await Respond(std::move(response));
  co_await LingeringClose();
}

void Connection::Stop(bool now) {
  keep_alive_ = false;
  if (working_ && !now) return;
  MarkGone();
  boost::system::error_code ec;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ec);
}

asio::awaitable<bool> Connection::ServeOne() {
  request_ = Request();
  route_.clear();
  status_ = 0;
  started_ = chunked_ = head_only_ = false;
  const bool arrived = co_await WaitForRequest();
  if (!arrived) co_return false;
  working_ = true;
  begun_ = Clock::now();

  Parser parser;
  parser.header_limit(shared_->options.max_header_bytes);
  parser.body_limit(shared_->options.max_body_bytes);
  const bool header = co_await ReadHeader(parser);
  if (!header) co_return false;

  const Router::Match match = shared_->router.Find(request_.method, request_.path);
  const bool has_body = !parser.is_done();
  std::optional<Refusal> refusal;
  if (request_.method != "OPTIONS") {
    refusal = CheckAccess(shared_->options.access, match.route != nullptr && match.route->is_public,
                          request_);
  }
  if (refusal) {
    if (refusal->authentication && shared_->options.auth_failure_delay_ms > 0) {
      asio::steady_timer timer(executor(), milliseconds(shared_->options.auth_failure_delay_ms));
      co_await timer.async_wait(kTuple);
    }
    if (has_body) keep_alive_ = false;
    Response response = ErrorResponse(refusal->error);
    if (refusal->authentication) response.headers.Add("WWW-Authenticate", "Bearer");
    co_await Respond(std::move(response));
  } else {
    const bool body = co_await ReadBody(parser);
    if (!body) co_return false;
    co_await Dispatch();
  }
  working_ = false;
  if (shared_->options.on_done) {
    shared_->options.on_done(route_, status_, Seconds(Clock::now() - begun_));
  }
  if (keep_alive_ && !gone_) co_return true;
  co_await LingeringClose();
  co_return false;
}

asio::awaitable<bool> Connection::WaitForRequest() {
  if (buffer_.size() > 0) co_return true;
  if (shared_->stopping) co_return false;
  stream_.expires_after(milliseconds(shared_->options.idle_timeout_ms));
  const auto [ec, n] = co_await stream_.async_read_some(buffer_.prepare(4096), kTuple);
  if (ec) co_return false;
  buffer_.commit(n);
  co_return true;
}

asio::awaitable<bool> Connection::ReadHeader(Parser& parser) {
  stream_.expires_after(milliseconds(shared_->options.header_timeout_ms));
  const auto [ec, used] = co_await http::async_read_header(stream_, buffer_, parser, kTuple);
  request_.peer = peer_;
  if (ec) {
    request_.id = NewRequestId();
    co_return co_await RefuseBroken(ec);
  }
  const auto& message = parser.get();
  for (const auto& field : message) {
    request_.headers.Add(View(field.name_string()), View(field.value()));
  }
  request_.method = std::string(View(message.method_string()));
  const std::string_view target = OriginForm(View(message.target()));
  const size_t question = target.find('?');
  request_.path = PercentDecode(target.substr(0, question));
  if (question != std::string_view::npos) request_.query = target.substr(question + 1);
  request_.id = UsableRequestId(request_.headers.Get("x-request-id"));
  http10_ = message.version() < 11;
  keep_alive_ = message.keep_alive() && !shared_->stopping;
  head_only_ = request_.method == "HEAD";
  if (!http10_ && !request_.headers.Has("host")) {
    keep_alive_ = false;
    Response response = ErrorWith(400, "The Host header is missing.");
    co_await Respond(std::move(response));
    co_await LingeringClose();
    co_return false;
  }
  co_return true;
}

asio::awaitable<bool> Connection::ReadBody(Parser& parser) {
  if (parser.is_done()) co_return true;
  if (EqualsIgnoreCase(request_.headers.Get("expect"), "100-continue")) {
    const bool sent = co_await WriteAll("HTTP/1.1 100 Continue\r\n\r\n");
    if (!sent) co_return false;
  }
  const milliseconds patience(shared_->options.body_timeout_ms);
  const Clock::time_point start = Clock::now();
  while (!parser.is_done()) {
    stream_.expires_after(patience);
    const auto [ec, used] = co_await http::async_read_some(stream_, buffer_, parser, kTuple);
    if (ec) co_return co_await RefuseBroken(ec);
    // A trickle that never pauses long enough must not hold a connection for hours either.
    const milliseconds earned(parser.get().body().size());
    if (Clock::now() - start > patience + earned) {
      co_return co_await RefuseBroken(beast::error::timeout);
    }
  }
  request_.body = std::move(parser.get().body());
  co_return true;
}

// Answers a request that cannot be read; returns false for the caller to pass on.
asio::awaitable<bool> Connection::RefuseBroken(boost::system::error_code ec) {
  keep_alive_ = false;
  ApiError error{.status = 400};
  if (ec == http::error::body_limit) {
    error = TooLarge(shared_->options.max_body_bytes);
  } else if (ec == http::error::header_limit) {
    error = {.status = 431,
             .message = absl::StrCat("The request header is larger than the limit of ",
                                     shared_->options.max_header_bytes,
                                     " bytes (gateway.max_header_bytes).")};
  } else if (ec.category() == http::make_error_code(http::error::bad_method).category() &&
             ec != http::error::end_of_stream && ec != http::error::partial_message) {
    error.message = absl::StrCat("The request is not valid HTTP: ", ec.message(), ".");
  } else {
    // The client went away, or the stream's timer closed the socket: nothing can be sent.
    co_return false;
  }
  Response response = ErrorResponse(error);
  co_await Respond(std::move(response));
  co_await LingeringClose();
  co_return false;
}

asio::awaitable<void> Connection::Dispatch() {
  const Router::Match match = shared_->router.Find(request_.method, request_.path);
  if (request_.method == "OPTIONS") {
    co_await Preflight(match);
  } else if (match.route != nullptr) {
    request_.path_parameter = match.parameter;
    route_ = match.route->path;
    co_await CallHandler(*match.route);
  } else {
    Response response =
        match.allowed.empty() ? NotFound(request_) : MethodNotAllowed(request_, match.allowed);
    co_await Respond(std::move(response));
  }
}

asio::awaitable<void> Connection::Preflight(const Router::Match& match) {
  if (match.allowed.empty() && request_.path != "*") {
    Response response = NotFound(request_);
    co_await Respond(std::move(response));
    co_return;
  }
  Response response;
  response.status = 204;
  response.headers = PreflightHeaders(shared_->options.access, request_, match.allowed);
  response.headers.Add("Allow", match.allowed);
  co_await Respond(std::move(response));
}

asio::awaitable<void> Connection::CallHandler(const Route& route) {
  std::string failure;
  StartWatching();
  try {
    co_await route.handler(*this);
  } catch (const std::exception& e) {  // from libraries: bad_alloc and the like
    failure = e.what();
  }
  StopWatching();
  on_gone_ = nullptr;
  if (!failure.empty()) {
    LogError("request ", request_.id, " failed: ", failure);
    keep_alive_ = false;
  }
  if (!started_ && !gone_) {
    Response response = ErrorWith(500, "The server failed.");
    co_await Respond(std::move(response));
  }
}

std::string Connection::Head(int status, std::string_view content_type, const Headers& headers,
                             std::string_view framing) {
  const std::string_view reason = View(http::obsolete_reason(static_cast<http::status>(status)));
  std::string head = absl::StrCat("HTTP/1.1 ", status, " ", A(reason), "\r\n");
  if (!content_type.empty()) absl::StrAppend(&head, "Content-Type: ", A(content_type), "\r\n");
  absl::StrAppend(&head, A(framing), "x-request-id: ", request_.id, "\r\n");
  if (!shared_->options.access.allowed_origins.empty()) {
    absl::StrAppend(&head, "Vary: Origin\r\n");
    const std::string_view origin = request_.headers.Get("origin");
    if (!origin.empty() && request_.method != "OPTIONS" &&
        OriginAllowed(shared_->options.access, request_)) {
      absl::StrAppend(&head, "Access-Control-Allow-Origin: ", A(origin), "\r\n");
    }
  }
  for (const auto& [name, value] : headers.fields()) {
    absl::StrAppend(&head, name, ": ", value, "\r\n");
  }
  if (keep_alive_) {
    if (http10_) absl::StrAppend(&head, "Connection: keep-alive\r\n");
  } else {
    absl::StrAppend(&head, "Connection: close\r\n");
  }
  return head + "\r\n";
}

asio::awaitable<void> Connection::Respond(Response response) {
  if (started_) co_return;
  started_ = true;
  status_ = response.status;
  if (shared_->stopping) keep_alive_ = false;
  const auto elapsed = std::chrono::duration_cast<milliseconds>(Clock::now() - begun_);
  const bool no_body = response.status == 204;
  std::string framing;
  if (!no_body) absl::StrAppend(&framing, "Content-Length: ", response.body.size(), "\r\n");
  if (begun_ != Clock::time_point()) {
    absl::StrAppend(&framing, "openai-processing-ms: ", elapsed.count(), "\r\n");
  }
  std::string out = Head(response.status, no_body ? std::string() : response.content_type,
                         response.headers, framing);
  if (!head_only_ && !no_body) out += response.body;
  const bool sent = co_await WriteAll(out);
  if (!sent) keep_alive_ = false;
}

asio::awaitable<bool> Connection::StartStream(std::string_view content_type) {
  started_ = true;
  status_ = 200;
  chunked_ = !http10_;
  if (http10_ || shared_->stopping) keep_alive_ = false;
  std::string framing = "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
  if (chunked_) framing += "Transfer-Encoding: chunked\r\n";
  const std::string head = Head(200, content_type, Headers(), framing);
  co_return co_await WriteAll(head);
}

asio::awaitable<bool> Connection::Write(std::string_view bytes) {
  if (bytes.empty()) co_return !gone_;
  std::string framed;
  if (chunked_) {
    framed = absl::StrCat(absl::Hex(bytes.size()), "\r\n", A(bytes), "\r\n");
    bytes = framed;
  }
  co_return co_await WriteAll(bytes);
}

asio::awaitable<void> Connection::EndStream() {
  if (!chunked_) co_return;
  const bool sent = co_await WriteAll("0\r\n\r\n");
  if (!sent) keep_alive_ = false;
}

asio::awaitable<bool> Connection::WriteAll(std::string_view bytes) {
  while (!bytes.empty()) {
    stream_.expires_after(milliseconds(shared_->options.write_timeout_ms));
    const auto [ec, n] =
        co_await stream_.async_write_some(asio::buffer(bytes.data(), bytes.size()), kTuple);
    if (ec) {
      keep_alive_ = false;
      MarkGone();
      co_return false;
    }
    bytes.remove_prefix(n);
  }
  stream_.expires_never();
  co_return true;
}

asio::awaitable<void> Connection::LingeringClose() {
  boost::system::error_code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  buffer_.clear();
  stream_.expires_after(kLinger);
  while (stream_.socket().is_open()) {
    const auto [ec, n] = co_await stream_.async_read_some(buffer_.prepare(16384), kTuple);
    if (ec) break;
  }
  stream_.socket().close(ignored);
}

// While a handler works, nobody reads the socket; these three notice the client's end.
void Connection::StartWatching() {
  watching_ = true;
  Watch();
}

void Connection::StopWatching() {
  watching_ = false;
  boost::system::error_code ec;
  stream_.socket().cancel(ec);
}

void Connection::Watch() {
  stream_.socket().async_wait(asio::ip::tcp::socket::wait_read,
                              [self = shared_from_this()](const boost::system::error_code& ec) {
                                if (ec || !self->watching_) return;
                                const asio::mutable_buffer room = self->buffer_.prepare(4096);
                                const ssize_t n = recv(self->stream_.socket().native_handle(),
                                                       room.data(), room.size(), MSG_DONTWAIT);
                                if (n > 0) self->buffer_.commit(static_cast<size_t>(n));
                                if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
                                  self->MarkGone();
                                } else if (self->buffer_.size() < kPipelineBytes) {
                                  self->Watch();
                                }
                              });
}

void Connection::MarkGone() {
  if (gone_) return;
  gone_ = true;
  if (on_gone_) std::exchange(on_gone_, nullptr)();
}

}  // namespace strata::gateway
