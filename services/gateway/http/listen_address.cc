#include "services/gateway/http/listen_address.h"

#include <charconv>

#include <boost/asio/ip/address.hpp>

#include "common/base/status.h"

namespace strata::gateway {

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  const absl::Status broken = absl::InvalidArgumentError(
      absl::StrCat("gateway.listen '", A(text),
                   "' is not of the form 'address:port', e.g. 127.0.0.1:8080 or [::1]:8080"));
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return broken;
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  ListenAddress result;
  result.text = std::string(text);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), result.port);
  if (error != std::errc() || end != port.data() + port.size()) return broken;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host == "localhost") host = "127.0.0.1";
  boost::system::error_code ec;
  const auto address = boost::asio::ip::make_address(std::string(host), ec);
  if (ec) return broken;
  result.address = std::string(host);
  result.loopback = address.is_loopback();
  return result;
}

absl::Status CheckListenAddress(const ListenAddress& address, bool may_expose) {
  if (address.loopback || may_expose) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "refusing to listen on ", address.text,
      ": other machines could use this server without a key. Set gateway.api_key_file, listen on "
      "127.0.0.1, or set gateway.insecure_bind if something else protects it."));
}

}  // namespace strata::gateway
