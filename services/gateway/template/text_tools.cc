#include "services/gateway/template/text_tools.h"

#include <algorithm>

#include "common/base/status.h"
#include "services/gateway/template/format.h"

namespace strata::gateway::jinja {
namespace {

bool InSet(std::string_view character, const std::string* set) {
  if (set == nullptr) return IsSpace(DecodeAt(character, 0).value);
  // Compared character by character: a byte of one must not match inside another.
  for (size_t i = 0; i < set->size();) {
    const size_t length = DecodeAt(*set, i).length;
    if (std::string_view(*set).substr(i, length) == character) return true;
    i += length;
  }
  return false;
}

absl::StatusOr<std::vector<Text>> SplitSpaceLeft(Runtime& runtime, const Text& text,
                                                 int64_t limit) {
  const std::string& s = text.bytes();
  std::vector<Text> parts;
  size_t i = 0;
  const auto skip = [&](bool space) {
    while (i < s.size() && IsSpace(DecodeAt(s, i).value) == space) i += DecodeAt(s, i).length;
  };
  for (skip(true); i < s.size(); skip(true)) {
    STRATA_RETURN_IF_ERROR(runtime.Work(1));
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text.Sub(i, s.size()));
      return parts;
    }
    const size_t begin = i;
    skip(false);
    parts.push_back(text.Sub(begin, i));
  }
  return parts;
}

absl::StatusOr<std::vector<Text>> SplitSpaceRight(Runtime& runtime, const Text& text,
                                                  int64_t limit) {
  const std::string& s = text.bytes();
  std::vector<Text> parts;
  size_t i = s.size();
  const auto skip = [&](bool space) {
    while (i > 0) {
      const size_t start = PreviousStart(s, i);
      if (IsSpace(DecodeAt(s, start).value) != space) break;
      i = start;
    }
  };
  for (skip(true); i > 0; skip(true)) {
    STRATA_RETURN_IF_ERROR(runtime.Work(1));
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text.Sub(0, i));
      break;
    }
    const size_t end = i;
    skip(false);
    parts.push_back(text.Sub(i, end));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

Text Strip(const Text& text, Side side, const std::string* set) {
  const std::string_view s = text.bytes();
  size_t begin = 0;
  size_t end = s.size();
  if (side != Side::kRight) {
    while (begin < end) {
      const size_t length = DecodeAt(s, begin).length;
      if (!InSet(s.substr(begin, length), set)) break;
      begin += length;
    }
  }
  if (side != Side::kLeft) {
    while (end > begin) {
      const size_t start = PreviousStart(s, end);
      if (!InSet(s.substr(start, end - start), set)) break;
      end = start;
    }
  }
  return text.Sub(begin, end);
}

Text Upper(const Text& text) {
  return MapCharacters(text, [](char32_t c, size_t) { return ToUpper(c); });
}
Text Lower(const Text& text) {
  return MapCharacters(text, [](char32_t c, size_t) { return ToLower(c); });
}
Text Capitalize(const Text& text) {
  return MapCharacters(text, [](char32_t c, size_t i) { return i == 0 ? ToUpper(c) : ToLower(c); });
}

absl::StatusOr<std::vector<Text>> Split(Runtime& runtime, const Text& text,
                                        const std::string* separator, int64_t limit,
                                        bool from_right) {
  if (separator == nullptr) {
    return from_right ? SplitSpaceRight(runtime, text, limit)
                      : SplitSpaceLeft(runtime, text, limit);
  }
  if (separator->empty()) return absl::FailedPreconditionError("split: empty separator");
  const std::string& s = text.bytes();
  std::vector<Text> parts;
  const auto more = [&] { return limit < 0 || static_cast<int64_t>(parts.size()) < limit; };
  if (!from_right) {
    size_t begin = 0;
    while (more()) {
      STRATA_RETURN_IF_ERROR(runtime.Work(1));
      const size_t found = FindBytes(s, *separator, begin);
      if (found == std::string::npos) break;
      parts.push_back(text.Sub(begin, found));
      begin = found + separator->size();
    }
    parts.push_back(text.Sub(begin, s.size()));
    return parts;
  }
  size_t end = s.size();
  while (more() && end >= separator->size()) {
    STRATA_RETURN_IF_ERROR(runtime.Work(1));
    const size_t found = s.rfind(*separator, end - separator->size());
    if (found == std::string::npos) break;
    parts.push_back(text.Sub(found + separator->size(), end));
    end = found;
  }
  parts.push_back(text.Sub(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

absl::StatusOr<std::vector<Text>> SplitLines(Runtime& runtime, const Text& text, bool keep_ends) {
  const std::string& s = text.bytes();
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = DecodeAt(s, i);
    const size_t end = i;
    i += c.length;
    if (!IsLineBreak(c.value)) continue;
    if (c.value == '\r' && i < s.size() && s[i] == '\n') ++i;
    STRATA_RETURN_IF_ERROR(runtime.Work(1));
    lines.push_back(text.Sub(begin, keep_ends ? i : end));
    begin = i;
  }
  if (begin < s.size()) lines.push_back(text.Sub(begin, s.size()));
  return lines;
}

absl::StatusOr<Text> Replace(Runtime& runtime, const Text& text, const std::string& from,
                             const Text& to, int64_t limit) {
  const std::string& s = text.bytes();
  STRATA_RETURN_IF_ERROR(runtime.Room(s.size()));
  Text out;
  size_t copied = 0;
  size_t search = 0;
  for (int64_t n = 0; limit < 0 || n < limit; ++n) {
    const size_t found = FindBytes(s, from, search);
    if (found == std::string::npos) break;
    STRATA_RETURN_IF_ERROR(runtime.Fits(out.size() + to.size()));
    STRATA_RETURN_IF_ERROR(runtime.Work(1 + to.size() / 256));
    out.Append(text, copied, found);
    out.Append(to);
    copied = found + from.size();
    search = copied;
    if (from.empty()) {  // between all characters, and at both ends
      if (found == s.size()) break;
      search = found + DecodeAt(s, found).length;
    }
  }
  out.Append(text, copied, s.size());
  return out;
}

Text Join(const Text& separator, const std::vector<Text>& parts) {
  Text out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i != 0) out.Append(separator);
    out.Append(parts[i]);
  }
  return out;
}

}  // namespace strata::gateway::jinja
