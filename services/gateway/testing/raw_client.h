// A plain TCP socket for tests: what is sent and when is decided byte by byte, and what comes back
// is seen as it is on the wire.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/unique_fd.h"

namespace strata::gateway::testing {

struct RawResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunked framing removed
  bool complete = false;                       // framing ended properly
};

class RawClient {
 public:
  explicit RawClient(uint16_t port);

  bool Send(std::string_view bytes);
  // "METHOD path HTTP/1.1" with Host and, for a body, Content-Type and Content-Length.
  bool SendRequest(std::string_view method, std::string_view path, std::string_view body = "",
                   std::string_view extra_headers = "");
  // Reads until `text` is in the received bytes (which stay), the peer closes, or time is up.
  bool WaitFor(std::string_view text, std::chrono::milliseconds patience = kPatience);
  // Reads and removes one response.
  RawResponse Read(std::chrono::milliseconds patience = kPatience);
  // True if the peer closes without further bytes.
  bool WaitClosed(std::chrono::milliseconds patience = kPatience);

  void ShutdownSend();
  void Close() { fd_.Reset(); }
  // Closes so that the peer sees a reset.
  void Reset();
  // Small kernel buffers, so that a reader that takes nothing is felt soon.
  void ShrinkReceiveBuffer();
  const std::string& received() const { return received_; }
  bool connected() const { return fd_.valid(); }

 private:
  static constexpr std::chrono::milliseconds kPatience{120000};
  // False at the end of the stream or of the patience.
  bool Receive(std::chrono::steady_clock::time_point deadline);

  UniqueFd fd_;
  std::string received_;
  bool closed_ = false;
};

// One request on a connection of its own.
RawResponse Fetch(uint16_t port, std::string_view method, std::string_view path,
                  std::string_view body = "", std::string_view extra_headers = "");

}  // namespace strata::gateway::testing
