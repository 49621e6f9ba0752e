// Operations on strings shared by filters and methods. All keep trust per character.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/gateway/template/runtime.h"
#include "services/gateway/template/text.h"
#include "services/gateway/template/utf8.h"

#include "absl/status/statusor.h"

namespace strata::gateway::jinja {

enum class Side { kLeft, kRight, kBoth };

// Removes whitespace, or the characters of `set` when given, from one or both ends.
Text Strip(const Text& text, Side side, const std::string* set);

// Each character mapped by `map`, which gets its position among the characters.
template <typename Map>
Text MapCharacters(const Text& text, Map map) {
  Text out;
  const std::string& bytes = text.bytes();
  size_t index = 0;
  for (size_t i = 0; i < bytes.size(); ++index) {
    const CodePoint c = DecodeAt(bytes, i);
    if (c.value == kInvalidCodePoint) {
      out.Append(text, i, i + c.length);
    } else {
      out.AppendAs(text, i, map(c.value, index));
    }
    i += c.length;
  }
  return out;
}

Text Upper(const Text& text);
Text Lower(const Text& text);
Text Capitalize(const Text& text);

// str.split / str.rsplit. `separator` null: runs of whitespace. limit < 0: no limit.
absl::StatusOr<std::vector<Text>> Split(Runtime& runtime, const Text& text,
                                        const std::string* separator, int64_t limit,
                                        bool from_right);
absl::StatusOr<std::vector<Text>> SplitLines(Runtime& runtime, const Text& text, bool keep_ends);

// str.replace; limit < 0: all.
absl::StatusOr<Text> Replace(Runtime& runtime, const Text& text, const std::string& from,
                             const Text& to, int64_t limit);

Text Join(const Text& separator, const std::vector<Text>& parts);

}  // namespace strata::gateway::jinja
