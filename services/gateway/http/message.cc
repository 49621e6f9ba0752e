#include "services/gateway/http/message.h"

#include <algorithm>
#include <cctype>

#include "services/gateway/json/json.h"

namespace strata::gateway {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string_view DefaultType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "unavailable_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

}  // namespace

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

std::string_view Headers::Get(std::string_view name) const {
  for (const auto& [key, value] : fields_) {
    if (EqualsIgnoreCase(key, name)) return value;
  }
  return {};
}

bool Headers::Has(std::string_view name) const {
  return std::any_of(fields_.begin(), fields_.end(),
                     [&](const auto& field) { return EqualsIgnoreCase(field.first, name); });
}

std::string ErrorBody(const ApiError& error) {
  std::string out = "{\"error\":{\"message\":";
  AppendJsonString(error.message, &out);
  out += ",\"type\":";
  AppendJsonString(error.type.empty() ? DefaultType(error.status) : error.type, &out);
  out += ",\"param\":";
  if (error.param.empty()) {
    out += "null";
  } else {
    AppendJsonString(error.param, &out);
  }
  out += ",\"code\":";
  if (error.code.empty()) {
    out += "null";
  } else {
    AppendJsonString(error.code, &out);
  }
  for (const auto& [name, json] : error.extra) {
    out += ',';
    AppendJsonString(name, &out);
    out += ':';
    out += json;
  }
  return out + "}}";
}

Response ErrorResponse(const ApiError& error) {
  Response response;
  response.status = error.status;
  response.body = ErrorBody(error);
  if (error.retry_after_s > 0) {
    response.headers.Add("Retry-After", std::to_string(error.retry_after_s));
  }
  return response;
}

std::string PercentDecode(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '%' && i + 2 < s.size()) {
      const int high = HexDigit(s[i + 1]);
      const int low = HexDigit(s[i + 2]);
      if (high >= 0 && low >= 0) {
        out.push_back(static_cast<char>(high * 16 + low));
        i += 2;
        continue;
      }
    }
    out.push_back(s[i]);
  }
  return out;
}

}  // namespace strata::gateway
