// One HTTP request and one whole response, free of any library's types.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::gateway {

// Header fields in the order received. Names compare without regard to case.
class Headers {
 public:
  void Add(std::string_view name, std::string_view value) { fields_.emplace_back(name, value); }
  // The first value of `name`, or empty.
  std::string_view Get(std::string_view name) const;
  bool Has(std::string_view name) const;
  const std::vector<std::pair<std::string, std::string>>& fields() const { return fields_; }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

bool EqualsIgnoreCase(std::string_view a, std::string_view b);

struct Request {
  std::string method;
  std::string path;   // percent-decoded, without query
  std::string query;  // as sent
  Headers headers;
  std::string body;
  std::string id;      // x-request-id of the client if it is usable, else generated
  std::string peer;    // address of the other end, for logs
  std::string client;  // fairness key: the API key's name, or the peer's address without its port
  std::string tenant;  // stored state is shared only within a tenant; empty = shared by all
  std::string path_parameter;  // what a route's "{...}" matched
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers;  // beside those that the server adds
};

// An error as OpenAI's clients expect it. `type` and `code` follow the status unless given.
struct ApiError {
  int status = 500;
  std::string message;
  std::string param;  // request field to blame; empty = null
  std::string type;
  std::string code;
  int retry_after_s = 0;  // > 0: Retry-After header
  // Further members of the error object: name and a JSON value.
  std::vector<std::pair<std::string, std::string>> extra;
};

// {"error":{"message","type","param","code"}}
std::string ErrorBody(const ApiError& error);
Response ErrorResponse(const ApiError& error);

// "%2F" and friends; a broken escape stays as it is.
std::string PercentDecode(std::string_view s);

}  // namespace strata::gateway
