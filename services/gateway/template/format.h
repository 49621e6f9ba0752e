// Values as text: str(), repr(), Python's % operator and str.format, all keeping trust per
// character. Punctuation, numbers and keywords that Python itself would write are trusted; what is
// copied out of strings keeps the trust it had.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "services/gateway/template/runtime.h"
#include "services/gateway/template/value.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::gateway::jinja {

// str(value) at the end of `out`; "" for undefined.
absl::Status AppendStr(Runtime& runtime, const Value& value, Text& out);
absl::StatusOr<Text> ToStr(Runtime& runtime, const Value& value);
absl::Status AppendRepr(Runtime& runtime, const Value& value, Text& out, int depth = 0);

// repr(float): the shortest digits that read back as the same number, with Python's layout.
std::string FormatFloat(double value);

// format % arguments (a tuple for several, a mapping for %(name)s).
absl::StatusOr<Value> PercentFormat(Runtime& runtime, const Value& format, const Value& arguments);
// format.format(*args, **kwargs)
absl::StatusOr<Value> BraceFormat(Runtime& runtime, const Value& format, const Args& args);

// Position of `needle` in `haystack` at or after `from`; npos if none. Linear in the worst case.
size_t FindBytes(std::string_view haystack, std::string_view needle, size_t from);

}  // namespace strata::gateway::jinja
