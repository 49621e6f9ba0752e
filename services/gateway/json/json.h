// JSON in and out of the gateway, on Boost.JSON, with the two things it lacks: limits that turn
// into messages, and output that is valid whatever bytes a model produced.
#pragma once

#include <string>
#include <string_view>

#include <boost/json/value.hpp>

#include "absl/status/statusor.h"

namespace strata::gateway {

// Nesting that a request may have; deeper ones are refused before anything recurses into them.
inline constexpr int kMaxJsonDepth = 100;

// Parses one JSON document. A UTF-8 byte order mark is skipped; of duplicate keys the last one
// counts; a lone UTF-16 surrogate escape (what a client sends after cutting a string in the middle
// of an emoji) becomes U+FFFD. Errors: InvalidArgument with the byte position.
absl::StatusOr<boost::json::value> ParseJson(std::string_view text);

// Compact text. Numbers are printed in their shortest form ("0.7", not "7E-1"), infinities and NaN
// as null, and bytes that are not UTF-8 as U+FFFD.
std::string ToJson(const boost::json::value& value);

// Appends `text` as a JSON string with quotes.
void AppendJsonString(std::string_view text, std::string* out);

// The text of member `key` of the JSON object `object`, exactly as written there; empty if it is
// not present. `object` must be valid JSON (checked by ParseJson).
std::string_view RawMember(std::string_view object, std::string_view key);

}  // namespace strata::gateway
