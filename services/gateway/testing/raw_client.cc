#include "services/gateway/testing/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "common/base/status.h"

namespace strata::gateway::testing {
namespace {

using Clock = std::chrono::steady_clock;

void ParseHead(std::string_view head, RawResponse* response) {
  size_t line_end = head.find("\r\n");
  const std::string first(head.substr(0, line_end));
  if (first.size() > 12) response->status = std::stoi(first.substr(9, 3));
  while (line_end != std::string_view::npos) {
    head.remove_prefix(line_end + 2);
    line_end = head.find("\r\n");
    const std::string_view line = head.substr(0, line_end);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    std::string name(line.substr(0, colon));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    response->headers[name] = std::string(line.substr(std::min(colon + 2, line.size())));
  }
}

}  // namespace

RawClient::RawClient(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    fd_.Reset();
  }
}

bool RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool RawClient::SendRequest(std::string_view method, std::string_view path, std::string_view body,
                            std::string_view extra_headers) {
  std::string text =
      absl::StrCat(A(method), " ", A(path), " HTTP/1.1\r\nHost: localhost\r\n", A(extra_headers));
  if (method == "POST" || !body.empty()) {
    absl::StrAppend(&text, "Content-Type: application/json\r\nContent-Length: ", body.size(),
                    "\r\n");
  }
  return Send(text + "\r\n" + std::string(body));
}

bool RawClient::Receive(Clock::time_point deadline) {
  if (closed_) return false;
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd wait{fd_.get(), POLLIN, 0};
  if (left <= 0 || poll(&wait, 1, static_cast<int>(left)) <= 0) return false;
  std::array<char, 65536> buffer;
  const ssize_t n = recv(fd_.get(), buffer.data(), buffer.size(), 0);
  if (n <= 0) {
    closed_ = true;
    return false;
  }
  received_.append(buffer.data(), static_cast<size_t>(n));
  return true;
}

bool RawClient::WaitFor(std::string_view text, std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  while (received_.find(text) == std::string::npos) {
    if (!Receive(deadline)) return received_.find(text) != std::string::npos;
  }
  return true;
}

RawResponse RawClient::Read(std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  RawResponse response;
  size_t end = 0;
  while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
    if (!Receive(deadline)) return response;
  }
  ParseHead(std::string_view(received_).substr(0, end), &response);
  received_.erase(0, end + 4);
  const auto take = [&](size_t n) {
    while (received_.size() < n) {
      if (!Receive(deadline)) return false;
    }
    return true;
  };
  if (response.headers["transfer-encoding"] == "chunked") {
    while (true) {
      size_t line = 0;
      while ((line = received_.find("\r\n")) == std::string::npos) {
        if (!Receive(deadline)) return response;
      }
      const size_t size = std::stoul(received_.substr(0, line), nullptr, 16);
      if (!take(line + 2 + size + 2)) return response;
      response.body += received_.substr(line + 2, size);
      received_.erase(0, line + 2 + size + 2);
      if (size == 0) {
        response.complete = true;
        return response;
      }
    }
  }
  const auto length = response.headers.find("content-length");
  if (length != response.headers.end()) {
    const size_t n = std::stoul(length->second);
    response.complete = take(n);
    response.body = received_.substr(0, n);
    received_.erase(0, response.body.size());
    return response;
  }
  if (response.status == 204 || response.status == 100) {
    response.complete = true;
    return response;
  }
  while (Receive(deadline)) {
  }
  response.complete = closed_;
  response.body = std::move(received_);
  received_.clear();
  return response;
}

bool RawClient::WaitClosed(std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  const size_t before = received_.size();
  while (Receive(deadline)) {
  }
  return closed_ && received_.size() == before;
}

void RawClient::ShutdownSend() { shutdown(fd_.get(), SHUT_WR); }

void RawClient::Reset() {
  const linger hard{1, 0};
  setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  fd_.Reset();
}

void RawClient::ShrinkReceiveBuffer() {
  const int bytes = 4096;
  setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

RawResponse Fetch(uint16_t port, std::string_view method, std::string_view path,
                  std::string_view body, std::string_view extra_headers) {
  RawClient client(port);
  client.SendRequest(method, path, body, extra_headers);
  return client.Read();
}

}  // namespace strata::gateway::testing
