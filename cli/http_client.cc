#include "cli/http_client.h"

#include <chrono>
#include <thread>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "common/base/status.h"

#include "absl/strings/str_cat.h"

namespace strata::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

absl::Status Failure(const std::string& address, const beast::error_code& error) {
  return absl::UnavailableError(absl::StrCat("gateway at ", address, ": ", error.message()));
}

absl::StatusOr<asio::ip::tcp::socket> Connect(asio::io_context& io, const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is not host:port"));
  }
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  beast::error_code error;
  asio::ip::tcp::resolver resolver(io);
  const auto endpoints = resolver.resolve(host, address.substr(colon + 1), error);
  if (error) return Failure(address, error);
  asio::ip::tcp::socket socket(io);
  asio::connect(socket, endpoints, error);
  if (error) return Failure(address, error);
  return socket;
}

// Cuts a stream of bytes into events: blank lines end an event, "data:" lines carry it.
class EventCutter {
 public:
  // False when `on_event` wants no more.
  bool Feed(std::string_view bytes, const std::function<bool(std::string_view)>& on_event) {
    buffer_.append(bytes);
    for (size_t end; (end = buffer_.find("\n\n")) != std::string::npos;) {
      const std::string event = buffer_.substr(0, end);
      buffer_.erase(0, end + 2);
      constexpr std::string_view kData = "data: ";
      if (event.starts_with(kData) && !on_event(std::string_view(event).substr(kData.size()))) {
        return false;
      }
    }
    return true;
  }

 private:
  std::string buffer_;
};

}  // namespace

absl::StatusOr<HttpResponse> HttpGet(const std::string& address, const std::string& path) {
  asio::io_context io;
  STRATA_ASSIGN_OR_RETURN(asio::ip::tcp::socket socket, Connect(io, address));
  http::request<http::empty_body> request(http::verb::get, path, 11);
  request.set(http::field::host, address);
  request.set(http::field::connection, "close");
  beast::error_code error;
  http::write(socket, request, error);
  if (error) return Failure(address, error);
  beast::flat_buffer buffer;
  http::response<http::string_body> response;
  http::read(socket, buffer, response, error);
  if (error) return Failure(address, error);
  return HttpResponse{static_cast<int>(response.result_int()), std::move(response.body())};
}

bool IsHealthy(const std::string& address) {
  const absl::StatusOr<HttpResponse> health = HttpGet(address, "/health");
  return health.ok() && health->status == 200;
}

absl::Status AwaitHealthy(const std::string& address) {
  for (int i = 0; i < 1200; ++i) {
    if (IsHealthy(address)) return absl::OkStatus();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("the gateway at ", address, " does not become healthy"));
}

absl::StatusOr<HttpResponse> HttpPostStream(const std::string& address, const std::string& path,
                                            const std::string& api_key, std::string_view json,
                                            const std::function<bool(std::string_view)>& on_event) {
  asio::io_context io;
  STRATA_ASSIGN_OR_RETURN(asio::ip::tcp::socket socket, Connect(io, address));
  http::request<http::string_body> request(http::verb::post, path, 11);
  request.set(http::field::host, address);
  request.set(http::field::content_type, "application/json");
  if (!api_key.empty()) request.set(http::field::authorization, "Bearer " + api_key);
  request.body() = std::string(json);
  request.prepare_payload();
  beast::error_code error;
  http::write(socket, request, error);
  if (error) return Failure(address, error);

  beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  http::read_header(socket, buffer, parser, error);
  if (error) return Failure(address, error);
  HttpResponse response;
  response.status = static_cast<int>(parser.get().result_int());
  EventCutter events;
  char chunk[8192];
  while (!parser.is_done()) {
    parser.get().body().data = chunk;
    parser.get().body().size = sizeof(chunk);
    http::read_some(socket, buffer, parser, error);
    if (error == http::error::need_buffer) error = {};
    if (error) return Failure(address, error);
    const std::string_view bytes(chunk, sizeof(chunk) - parser.get().body().size);
    if (response.status != 200) {
      response.body.append(bytes);
    } else if (!events.Feed(bytes, on_event)) {
      break;
    }
  }
  return response;
}

}  // namespace strata::cli
