// Request fields as a table: name, JSON types, range. One check answers every wrong type or value
// with an error that names the field; after it, the getters cannot fail. Fields that are not in the
// table are ignored: SDKs add new ones every month.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "services/gateway/http/message.h"

namespace strata::gateway {

enum FieldKind : uint8_t {
  kBool = 1,
  kInteger = 2,  // also 3.0
  kNumber = 4,
  kString = 8,
  kArray = 16,
  kObject = 32,
};

struct FieldSpec {
  std::string_view name;
  uint8_t kinds;  // FieldKind bits; null is always allowed and means absent
  double min = -std::numeric_limits<double>::infinity();  // of numbers
  double max = std::numeric_limits<double>::infinity();
};

// The first violation, in table order. `path` precedes the names: "messages[0]." or empty.
std::optional<ApiError> CheckFields(const boost::json::object& object,
                                    std::span<const FieldSpec> specs, std::string_view path = "");

// A 400 that blames `param`.
ApiError BadField(std::string_view param, std::string message);

// The value of a field that is present and not null, else null.
const boost::json::value* Field(const boost::json::object& object, std::string_view name);

// For fields that CheckFields accepted. Integers beyond 64 bits are clamped.
bool GetBool(const boost::json::object& object, std::string_view name, bool otherwise);
std::optional<int64_t> GetInteger(const boost::json::object& object, std::string_view name);
std::optional<double> GetNumber(const boost::json::object& object, std::string_view name);
std::string GetString(const boost::json::object& object, std::string_view name);
int64_t ToInteger(const boost::json::value& number);
// A number that is an integer.
bool IsInteger(const boost::json::value& value);

// The body as an object, or why not.
struct Body {
  boost::json::object object;
  std::optional<ApiError> error;
};
Body ParseBody(std::string_view text);

}  // namespace strata::gateway
