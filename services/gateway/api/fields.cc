#include "services/gateway/api/fields.h"

#include <cmath>

#include "common/base/status.h"
#include "services/gateway/json/json.h"

namespace strata::gateway {
namespace {

namespace json = boost::json;

std::string DescribeKinds(uint8_t kinds) {
  static constexpr std::pair<FieldKind, std::string_view> kNames[] = {
      {kBool, "a boolean"},  {kInteger, "an integer"}, {kNumber, "a number"},
      {kString, "a string"}, {kArray, "an array"},     {kObject, "an object"}};
  std::string out;
  for (const auto& [kind, name] : kNames) {
    if ((kinds & kind) == 0) continue;
    if (!out.empty()) out += " or ";
    out += name;
  }
  return out;
}

bool HasKind(const json::value& value, uint8_t kinds) {
  if (value.is_bool()) return (kinds & kBool) != 0;
  if (value.is_number()) {
    return (kinds & kNumber) != 0 || ((kinds & kInteger) != 0 && IsInteger(value));
  }
  if (value.is_string()) return (kinds & kString) != 0;
  if (value.is_array()) return (kinds & kArray) != 0;
  if (value.is_object()) return (kinds & kObject) != 0;
  return true;  // null
}

double AsDouble(const json::value& value) {
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  return value.get_double();
}

}  // namespace

ApiError BadField(std::string_view param, std::string message) {
  ApiError error;
  error.status = 400;
  error.message = std::move(message);
  error.param = std::string(param);
  return error;
}

bool IsInteger(const json::value& value) {
  return value.is_int64() || value.is_uint64() ||
         (value.is_double() && std::isfinite(value.get_double()) &&
          std::trunc(value.get_double()) == value.get_double());
}

std::optional<ApiError> CheckFields(const json::object& object, std::span<const FieldSpec> specs,
                                    std::string_view path) {
  for (const FieldSpec& spec : specs) {
    const json::value* value = Field(object, spec.name);
    if (value == nullptr) continue;
    const std::string param = absl::StrCat(A(path), A(spec.name));
    if (!HasKind(*value, spec.kinds)) {
      return BadField(param,
                      absl::StrCat("'", param, "' must be ", DescribeKinds(spec.kinds), "."));
    }
    if (!value->is_number()) continue;
    const double number = AsDouble(*value);
    if (!std::isfinite(number) || number < spec.min || number > spec.max) {
      std::string range;
      if (std::isfinite(spec.min)) absl::StrAppend(&range, " at least ", spec.min);
      if (std::isfinite(spec.max)) {
        absl::StrAppend(&range, range.empty() ? "" : " and", " at most ", spec.max);
      }
      return BadField(
          param, absl::StrCat("'", param, "' must be", range.empty() ? " finite" : range, "."));
    }
  }
  return std::nullopt;
}

const json::value* Field(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains({name.data(), name.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool GetBool(const json::object& object, std::string_view name, bool otherwise) {
  const json::value* value = Field(object, name);
  return value != nullptr && value->is_bool() ? value->get_bool() : otherwise;
}

int64_t ToInteger(const json::value& number) {
  if (number.is_int64()) return number.get_int64();
  constexpr double kLimit = 9.2e18;
  return static_cast<int64_t>(std::fmin(std::fmax(AsDouble(number), -kLimit), kLimit));
}

std::optional<int64_t> GetInteger(const json::object& object, std::string_view name) {
  const json::value* value = Field(object, name);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return ToInteger(*value);
}

std::optional<double> GetNumber(const json::object& object, std::string_view name) {
  const json::value* value = Field(object, name);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return AsDouble(*value);
}

std::string GetString(const json::object& object, std::string_view name) {
  const json::value* value = Field(object, name);
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

Body ParseBody(std::string_view text) {
  Body body;
  absl::StatusOr<json::value> parsed = ParseJson(text);
  if (!parsed.ok()) {
    body.error = BadField("", std::string(parsed.status().message()));
    body.error->code = "invalid_json";
  } else if (!parsed->is_object()) {
    body.error = BadField("", "the body must be a JSON object");
  } else {
    body.object = std::move(parsed->get_object());
  }
  return body;
}

}  // namespace strata::gateway
