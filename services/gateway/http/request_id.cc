#include "services/gateway/http/request_id.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <random>

namespace strata::gateway {

std::string RandomName(int length) {
  static constexpr std::string_view kAlphabet =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string out;
  while (out.size() < static_cast<size_t>(length)) {
    std::array<unsigned char, 64> random;
    // getrandom fills up to 256 bytes without interruption once the kernel is up.
    if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) continue;
    for (const unsigned char byte : random) {
      // 248 is the largest multiple of 62 in a byte: no character is likelier than another.
      if (byte < 248 && out.size() < static_cast<size_t>(length)) out += kAlphabet[byte % 62];
    }
  }
  return out;
}

std::string NewRequestId() { return "req-" + RandomName(20); }

std::string UsableRequestId(std::string_view from_client) {
  const bool plain = std::all_of(from_client.begin(), from_client.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':';
  });
  if (from_client.empty() || from_client.size() > 128 || !plain) return NewRequestId();
  return std::string(from_client);
}

}  // namespace strata::gateway
