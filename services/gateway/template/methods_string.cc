// Methods of Python's str that templates use.
#include <algorithm>
#include <string>

#include "common/base/status.h"
#include "services/gateway/template/builtin_tables.h"
#include "services/gateway/template/format.h"
#include "services/gateway/template/operators.h"
#include "services/gateway/template/text_tools.h"

namespace strata::gateway::jinja {
namespace {

absl::Status NeedString(std::string_view method, const Value& got) {
  if (got.IsUndefined()) return UndefinedError(got.undefined());
  return TypeError(absl::StrCat(A(method), ": expected a string, got ", A(got.TypeName())));
}

template <Text (*kMap)(const Text&)>
absl::StatusOr<Value> Mapped(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  STRATA_RETURN_IF_ERROR(runtime.Room(self.text().size()));
  STRATA_RETURN_IF_ERROR(runtime.Work(self.text().size() / 16));  // one step a character or so
  return runtime.heap().NewText(kMap(self.text()));
}

// A word starts after anything that has no case, unlike in the title filter.
Text PythonTitle(const Text& text) {
  bool start = true;
  return MapCharacters(text, [&start](char32_t c, size_t) {
    const bool upper = start;
    start = !IsUpper(c) && !IsLower(c);
    return upper ? ToUpper(c) : ToLower(c);
  });
}

Text SwapCase(const Text& text) {
  return MapCharacters(text,
                       [](char32_t c, size_t) { return IsUpper(c) ? ToLower(c) : ToUpper(c); });
}

template <Side kSide>
absl::StatusOr<Value> StripMethod(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("strip", args, {"chars"}));
  STRATA_RETURN_IF_ERROR(runtime.Room(self.text().size()));
  const bool given = bound.Has(0) && !bound[0].IsNone();
  if (given && !bound[0].IsString()) return NeedString("strip", bound[0]);
  return runtime.heap().NewText(Strip(self.text(), kSide, given ? &bound[0].bytes() : nullptr));
}

absl::StatusOr<Value> TextList(Runtime& runtime, std::vector<Text> parts) {
  STRATA_RETURN_IF_ERROR(runtime.Work(parts.size()));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (Text& part : parts) items.push_back(runtime.heap().NewText(std::move(part)));
  return runtime.heap().NewList(std::move(items));
}

template <bool kFromRight>
absl::StatusOr<Value> SplitMethod(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("split", args, {"sep", "maxsplit"}));
  STRATA_RETURN_IF_ERROR(runtime.Room(self.text().size()));
  STRATA_ASSIGN_OR_RETURN(const int64_t limit, bound.Int(1, -1));
  const bool given = bound.Has(0) && !bound[0].IsNone();
  if (given && !bound[0].IsString()) return NeedString("split", bound[0]);
  STRATA_ASSIGN_OR_RETURN(
      std::vector<Text> parts,
      Split(runtime, self.text(), given ? &bound[0].bytes() : nullptr, limit, kFromRight));
  return TextList(runtime, std::move(parts));
}

absl::StatusOr<Value> SplitLinesMethod(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("splitlines", args, {"keepends"}));
  STRATA_RETURN_IF_ERROR(runtime.Room(self.text().size()));
  STRATA_ASSIGN_OR_RETURN(std::vector<Text> lines,
                          SplitLines(runtime, self.text(), bound.Flag(0, false)));
  return TextList(runtime, std::move(lines));
}

// partition, rpartition: (before, separator, after).
template <bool kFromRight>
absl::StatusOr<Value> Partition(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("partition", args, {"sep"}, 1));
  if (!bound[0].IsString()) return NeedString("partition", bound[0]);
  STRATA_RETURN_IF_ERROR(runtime.Room(self.text().size()));
  const std::string& separator = bound[0].bytes();
  STRATA_ASSIGN_OR_RETURN(std::vector<Text> parts,
                          Split(runtime, self.text(), &separator, 1, kFromRight));
  if (parts.size() == 2) {
    parts.insert(parts.begin() + 1, bound[0].text());
  } else {
    parts.insert(kFromRight ? parts.begin() : parts.end(), 2, Text());
  }
  STRATA_ASSIGN_OR_RETURN(Value list, TextList(runtime, std::move(parts)));
  list.list().tuple = true;
  return list;
}

// The part of `self` that start and end arguments number 1 and 2 select, in bytes.
struct Window {
  size_t begin;
  size_t end;
};
absl::StatusOr<Window> SelectWindow(const Value& self, const Bound& bound) {
  const std::string& s = self.bytes();
  if (!bound.Has(1) && !bound.Has(2)) return Window{0, s.size()};
  const int64_t length = static_cast<int64_t>(CountCodePoints(s));
  const auto offset = [&](int64_t i) {
    i = std::clamp<int64_t>(i < 0 ? i + length : i, 0, length);
    return ByteOffset(s, static_cast<size_t>(i));
  };
  STRATA_ASSIGN_OR_RETURN(const int64_t start, bound.Int(1, 0));
  STRATA_ASSIGN_OR_RETURN(const int64_t stop, bound.Int(2, length));
  // A start past the end matches nothing, not even "".
  if (start > length) return Window{1, 0};
  return Window{offset(start), offset(stop)};
}

// startswith, endswith: one string or a tuple of them.
template <bool kEnd>
absl::StatusOr<Value> HasAffix(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of(kEnd ? "endswith" : "startswith", args,
                                                       {"x", "start", "end"}, 1));
  STRATA_ASSIGN_OR_RETURN(const Window window, SelectWindow(self, bound));
  std::vector<Value> candidates = {bound[0]};
  if (bound[0].IsList() && bound[0].list().tuple) candidates = bound[0].list().items;
  for (const Value& candidate : candidates) {
    if (!candidate.IsString()) return NeedString(kEnd ? "endswith" : "startswith", candidate);
    if (window.begin > window.end) continue;
    STRATA_RETURN_IF_ERROR(runtime.Work(1));
    const std::string_view s =
        std::string_view(self.bytes()).substr(window.begin, window.end - window.begin);
    if (kEnd ? s.ends_with(candidate.bytes()) : s.starts_with(candidate.bytes())) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

enum class Search { kFind, kIndex, kRightFind };

template <Search kSearch>
absl::StatusOr<Value> Find(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("find", args, {"sub", "start", "end"}, 1));
  if (!bound[0].IsString()) return NeedString("find", bound[0]);
  STRATA_RETURN_IF_ERROR(runtime.Scan(self.text().size()));
  STRATA_ASSIGN_OR_RETURN(const Window window, SelectWindow(self, bound));
  size_t found = std::string::npos;
  if (window.begin <= window.end) {
    const std::string_view s = std::string_view(self.bytes()).substr(0, window.end);
    if (kSearch == Search::kRightFind) {
      found = s.rfind(bound[0].bytes());
      if (found != std::string::npos && found < window.begin) found = std::string::npos;
    } else {
      found = FindBytes(s, bound[0].bytes(), window.begin);
    }
  }
  if (found == std::string::npos) {
    if (kSearch == Search::kIndex) return absl::FailedPreconditionError("substring not found");
    return Value::Int(-1);
  }
  return Value::Int(
      static_cast<int64_t>(CountCodePoints(std::string_view(self.bytes()).substr(0, found))));
}

absl::StatusOr<Value> Count(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("count", args, {"sub", "start", "end"}, 1));
  if (!bound[0].IsString()) return NeedString("count", bound[0]);
  STRATA_RETURN_IF_ERROR(runtime.Scan(self.text().size()));
  STRATA_ASSIGN_OR_RETURN(const Window window, SelectWindow(self, bound));
  if (window.begin > window.end) return Value::Int(0);
  const std::string& needle = bound[0].bytes();
  const std::string_view s =
      std::string_view(self.bytes()).substr(window.begin, window.end - window.begin);
  if (needle.empty()) return Value::Int(static_cast<int64_t>(CountCodePoints(s)) + 1);
  int64_t count = 0;
  for (size_t i = FindBytes(s, needle, 0); i != std::string::npos;
       i = FindBytes(s, needle, i + needle.size())) {
    ++count;
  }
  return Value::Int(count);
}

absl::StatusOr<Value> ReplaceMethod(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound,
                          Bound::Of("replace", args, {"old", "new", "count"}, 2));
  for (size_t i = 0; i < 2; ++i) {
    if (!bound[i].IsString()) return NeedString("replace", bound[i]);
  }
  STRATA_ASSIGN_OR_RETURN(const int64_t count, bound.Int(2, -1));
  STRATA_ASSIGN_OR_RETURN(Text out,
                          Replace(runtime, self.text(), bound[0].bytes(), bound[1].text(), count));
  return runtime.heap().NewText(std::move(out));
}

absl::StatusOr<Value> JoinMethod(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("join", args, {"iterable"}, 1));
  STRATA_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, bound[0]));
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].IsString()) return NeedString("join", items[i]);
    const size_t bytes = self.text().size() + items[i].text().size();
    STRATA_RETURN_IF_ERROR(runtime.Fits(out.size() + bytes));
    STRATA_RETURN_IF_ERROR(runtime.Scan(bytes));
    if (i != 0) out.Append(self.text());
    out.Append(items[i].text());
  }
  return runtime.heap().NewText(std::move(out));
}

template <bool kSuffix>
absl::StatusOr<Value> RemoveAffix(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("removeprefix", args, {"affix"}, 1));
  if (!bound[0].IsString()) return NeedString("removeprefix", bound[0]);
  const Text& text = self.text();
  const std::string& affix = bound[0].bytes();
  STRATA_RETURN_IF_ERROR(runtime.Room(text.size()));
  if (kSuffix && text.bytes().ends_with(affix)) {
    return runtime.heap().NewText(text.Sub(0, text.size() - affix.size()));
  }
  if (!kSuffix && text.bytes().starts_with(affix)) {
    return runtime.heap().NewText(text.Sub(affix.size(), text.size()));
  }
  return self;
}

absl::StatusOr<Value> ZFill(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("zfill", args, {"width"}, 1));
  STRATA_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 0));
  const Text& text = self.text();
  const int64_t missing = width - static_cast<int64_t>(CountCodePoints(text.bytes()));
  if (missing <= 0) return self;
  STRATA_RETURN_IF_ERROR(runtime.Room(text.size() + static_cast<size_t>(missing)));
  const bool sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  Text out = text.Sub(0, sign ? 1 : 0);
  out.AppendTrusted(std::string(static_cast<size_t>(missing), '0'));
  out.Append(text, sign ? 1 : 0, text.size());
  return runtime.heap().NewText(std::move(out));
}

// ljust, rjust.
template <bool kLeft>
absl::StatusOr<Value> Justify(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("ljust", args, {"width", "fillchar"}, 1));
  STRATA_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 0));
  Text fill = Text::Trusted(" ");
  if (bound.Has(1)) {
    if (!bound[1].IsString() || CountCodePoints(bound[1].bytes()) != 1) {
      return TypeError("ljust, rjust: the fill character must be one character");
    }
    fill = bound[1].text();
  }
  const int64_t missing = width - static_cast<int64_t>(CountCodePoints(self.bytes()));
  if (missing <= 0) return self;
  STRATA_RETURN_IF_ERROR(runtime.Fits(static_cast<size_t>(missing) * 4));
  STRATA_RETURN_IF_ERROR(
      runtime.Room(self.text().size() + static_cast<size_t>(missing) * fill.size()));
  Text out;
  if (kLeft) out.Append(self.text());
  for (int64_t i = 0; i < missing; ++i) out.Append(fill);
  if (!kLeft) out.Append(self.text());
  return runtime.heap().NewText(std::move(out));
}

// All characters of a class, and at least one.
template <bool (*kClass)(char32_t)>
absl::StatusOr<Value> AllAre(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  const std::string& s = self.bytes();
  STRATA_RETURN_IF_ERROR(runtime.Scan(s.size()));
  for (size_t i = 0; i < s.size();) {
    const CodePoint c = DecodeAt(s, i);
    if (!kClass(c.value)) return Value::Bool(false);
    i += c.length;
  }
  return Value::Bool(!s.empty());
}

template <bool kUpper>
absl::StatusOr<Value> IsCase(Runtime& runtime, const Value& self, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const bool holds,
                          FindTest(kUpper ? "upper" : "lower")(runtime, self, args));
  return Value::Bool(holds);
}

constexpr Named<FilterFunction> kTable[] = {
    {"strip", StripMethod<Side::kBoth>},
    {"lstrip", StripMethod<Side::kLeft>},
    {"rstrip", StripMethod<Side::kRight>},
    {"split", SplitMethod<false>},
    {"rsplit", SplitMethod<true>},
    {"splitlines", SplitLinesMethod},
    {"partition", Partition<false>},
    {"rpartition", Partition<true>},
    {"startswith", HasAffix<false>},
    {"endswith", HasAffix<true>},
    {"find", Find<Search::kFind>},
    {"rfind", Find<Search::kRightFind>},
    {"index", Find<Search::kIndex>},
    {"count", Count},
    {"replace", ReplaceMethod},
    {"join", JoinMethod},
    {"format", BraceFormat},
    {"upper", Mapped<Upper>},
    {"lower", Mapped<Lower>},
    {"casefold", Mapped<Lower>},
    {"title", Mapped<PythonTitle>},
    {"capitalize", Mapped<Capitalize>},
    {"swapcase", Mapped<SwapCase>},
    {"removeprefix", RemoveAffix<false>},
    {"removesuffix", RemoveAffix<true>},
    {"zfill", ZFill},
    {"ljust", Justify<true>},
    {"rjust", Justify<false>},
    {"isdigit", AllAre<IsDigit>},
    {"isnumeric", AllAre<IsDigit>},
    {"isdecimal", AllAre<IsDigit>},
    {"isalpha", AllAre<IsAlpha>},
    {"isalnum", AllAre<IsAlnum>},
    {"isspace", AllAre<IsSpace>},
    {"isupper", IsCase<true>},
    {"islower", IsCase<false>},
};

}  // namespace

std::span<const Named<FilterFunction>> StringMethods() { return kTable; }

}  // namespace strata::gateway::jinja
