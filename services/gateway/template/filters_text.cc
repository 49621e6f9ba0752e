// Filters whose input is text. Whatever they are given is turned into a string first.
#include <algorithm>
#include <string>

#include "common/base/status.h"
#include "services/gateway/template/builtin_tables.h"
#include "services/gateway/template/format.h"
#include "services/gateway/template/operators.h"
#include "services/gateway/template/text_tools.h"

namespace strata::gateway::jinja {
namespace {

constexpr int64_t kMaxIndent = 1000;

// The input as a string, with room for a result of the same size.
absl::StatusOr<Text> Input(Runtime& runtime, const Value& input) {
  STRATA_ASSIGN_OR_RETURN(Text text, ToStr(runtime, input));
  STRATA_RETURN_IF_ERROR(runtime.Room(text.size()));
  return text;
}

template <Text (*kMap)(const Text&)>
absl::StatusOr<Value> MapFilter(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  STRATA_ASSIGN_OR_RETURN(const Text text, Input(runtime, input));
  STRATA_RETURN_IF_ERROR(runtime.Work(text.size() / 16));  // one step a character or so
  return runtime.heap().NewText(kMap(text));
}

// Words start after whitespace and - ( { [ <, unlike in str.title.
Text JinjaTitle(const Text& text) {
  bool start = true;
  return MapCharacters(text, [&start](char32_t c, size_t) {
    const bool breaks = IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    const bool upper = start;
    start = breaks;
    return upper ? ToUpper(c) : ToLower(c);
  });
}

Text HtmlEscape(const Text& text) {
  return MapCharacters(text, [](char32_t c, size_t) -> std::string {
    switch (c) {
      case '&':
        return "&amp;";
      case '<':
        return "&lt;";
      case '>':
        return "&gt;";
      case '\'':
        return "&#39;";
      case '"':
        return "&#34;";
      default:
        break;
    }
    std::string out;
    AppendUtf8(c, &out);
    return out;
  });
}

absl::StatusOr<Value> Trim(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("trim", args, {"chars"}));
  STRATA_ASSIGN_OR_RETURN(const Text text, Input(runtime, input));
  const bool given = bound.Has(0) && !bound[0].IsNone();
  if (given && !bound[0].IsString()) return TypeError("trim: chars must be a string");
  return runtime.heap().NewText(Strip(text, Side::kBoth, given ? &bound[0].bytes() : nullptr));
}

absl::StatusOr<Value> String(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  if (input.IsString()) return input;
  STRATA_ASSIGN_OR_RETURN(Text text, ToStr(runtime, input));
  return runtime.heap().NewText(std::move(text));
}

absl::StatusOr<Value> ReplaceFilter(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound,
                          Bound::Of("replace", args, {"old", "new", "count"}, 2));
  STRATA_ASSIGN_OR_RETURN(const Text text, Input(runtime, input));
  STRATA_ASSIGN_OR_RETURN(const Text from, ToStr(runtime, bound[0]));
  STRATA_ASSIGN_OR_RETURN(const Text to, ToStr(runtime, bound[1]));
  STRATA_ASSIGN_OR_RETURN(const int64_t count, bound.Int(2, -1));
  STRATA_ASSIGN_OR_RETURN(Text out, Replace(runtime, text, from.bytes(), to, count));
  return runtime.heap().NewText(std::move(out));
}

absl::StatusOr<Value> SplitFilter(Runtime& runtime, const Value& input, const Args& args) {
  if (!input.IsString()) return TypeError("split: the input must be a string");
  return FindMethod(input, "split")(runtime, input, args);
}

absl::StatusOr<Value> Indent(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound,
                          Bound::Of("indent", args, {"width", "first", "blank"}));
  if (input.IsUndefined()) return UndefinedError(input.undefined());
  if (!input.IsString()) return TypeError("indent: the input must be a string");
  Text indent = Text::Trusted("    ");
  if (bound.Has(0) && bound[0].IsString()) {
    indent = bound[0].text();
  } else {
    STRATA_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 4));
    if (width > kMaxIndent) return TypeError("indent: width above 1000");
    indent = Text::Trusted(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
  }
  const bool blank = bound.Flag(2, false);
  Text source = input.text();
  source.AppendTrusted("\n");  // so that a final line break is kept
  STRATA_ASSIGN_OR_RETURN(const std::vector<Text> lines, SplitLines(runtime, source, false));
  STRATA_RETURN_IF_ERROR(runtime.Room(source.size() + lines.size() * (indent.size() + 1)));
  Text out;
  if (bound.Flag(1, false)) out.Append(indent);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i != 0) {
      out.AppendTrusted("\n");
      if (blank || !lines[i].empty()) out.Append(indent);
    }
    out.Append(lines[i]);
  }
  return runtime.heap().NewText(std::move(out));
}

absl::StatusOr<Value> WordCount(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_RETURN_IF_ERROR(NoArguments(args));
  STRATA_ASSIGN_OR_RETURN(const Text text, Input(runtime, input));
  int64_t count = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = DecodeAt(text.bytes(), i);
    const bool word = c.value == '_' || IsAlnum(c.value);
    if (word && !inside) ++count;
    inside = word;
    i += c.length;
  }
  return Value::Int(count);
}

absl::StatusOr<Value> Center(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("center", args, {"width"}));
  STRATA_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 80));
  STRATA_ASSIGN_OR_RETURN(const Text text, Input(runtime, input));
  const int64_t missing = width - static_cast<int64_t>(CountCodePoints(text.bytes()));
  if (missing <= 0) return runtime.heap().NewText(text);
  STRATA_RETURN_IF_ERROR(runtime.Room(static_cast<size_t>(width)));
  // Python puts the odd blank left when the width is odd.
  const int64_t left = missing / 2 + (missing & width & 1);
  Text out = Text::Trusted(std::string(static_cast<size_t>(left), ' '));
  out.Append(text);
  out.AppendTrusted(std::string(static_cast<size_t>(missing - left), ' '));
  return runtime.heap().NewText(std::move(out));
}

absl::StatusOr<Value> Truncate(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound,
                          Bound::Of("truncate", args, {"length", "killwords", "end", "leeway"}));
  if (!input.IsString()) return TypeError("truncate: the input must be a string");
  STRATA_ASSIGN_OR_RETURN(const int64_t length, bound.Int(0, 255));
  STRATA_ASSIGN_OR_RETURN(const int64_t leeway, bound.Int(3, 5));
  const Text end = bound.Has(2) && bound[2].IsString() ? bound[2].text() : Text::Trusted("...");
  const Text& text = input.text();
  STRATA_RETURN_IF_ERROR(runtime.Room(text.size() + end.size()));
  const int64_t end_length = static_cast<int64_t>(CountCodePoints(end.bytes()));
  if (length < end_length || leeway < 0) {
    return absl::FailedPreconditionError("truncate: length is shorter than the end mark");
  }
  const int64_t have = static_cast<int64_t>(CountCodePoints(text.bytes()));
  if (have <= length || have - length <= leeway) return input;
  size_t cut = ByteOffset(text.bytes(), static_cast<size_t>(length - end_length));
  if (!bound.Flag(1, false)) {
    const size_t space = text.bytes().substr(0, cut).rfind(' ');
    if (space != std::string::npos) cut = space;
  }
  Text out = text.Sub(0, cut);
  out.Append(end);
  return runtime.heap().NewText(std::move(out));
}

absl::StatusOr<Value> FormatFilter(Runtime& runtime, const Value& input, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(Text text, Input(runtime, input));
  const Value format = runtime.heap().NewText(std::move(text));
  if (args.named.empty()) {
    return PercentFormat(runtime, format, runtime.heap().NewList(args.positional, true));
  }
  if (!args.positional.empty()) {
    return TypeError("format takes positional or keyword arguments, not both");
  }
  Dict* names = runtime.heap().NewDict();
  for (const auto& [name, value] : args.named) {
    names->SetText(runtime.heap().NewTrusted(std::string(name)), value);
  }
  return PercentFormat(runtime, format, Value(names));
}

constexpr Named<FilterFunction> kTable[] = {
    {"trim", Trim},
    {"strip", Trim},
    {"upper", MapFilter<Upper>},
    {"lower", MapFilter<Lower>},
    {"title", MapFilter<JinjaTitle>},
    {"capitalize", MapFilter<Capitalize>},
    {"string", String},
    {"safe", String},
    {"escape", MapFilter<HtmlEscape>},
    {"e", MapFilter<HtmlEscape>},
    {"forceescape", MapFilter<HtmlEscape>},
    {"replace", ReplaceFilter},
    {"split", SplitFilter},
    {"indent", Indent},
    {"wordcount", WordCount},
    {"center", Center},
    {"truncate", Truncate},
    {"format", FormatFilter},
};

}  // namespace

std::span<const Named<FilterFunction>> TextFilters() { return kTable; }

}  // namespace strata::gateway::jinja
