#include "services/gateway/template/json_values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "common/base/status.h"
#include "services/gateway/template/format.h"
#include "services/gateway/template/operators.h"
#include "services/gateway/template/utf8.h"

namespace strata::gateway::jinja {
namespace {

bool IsKnownRole(std::string_view role) {
  constexpr std::string_view kRoles[] = {"system",    "developer", "user",
                                         "assistant", "tool",      "function"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

absl::Status TooDeep() {
  return absl::ResourceExhaustedError(
      absl::StrCat("JSON nested deeper than ", kMaxValueDepth, " levels"));
}

Value NewText(Runtime& runtime, const boost::json::string& s, bool trusted) {
  std::string bytes(s.data(), s.size());
  return runtime.heap().NewText(trusted ? Text::Trusted(std::move(bytes))
                                        : Text::Untrusted(std::move(bytes)));
}

// Depth is bounded by kMaxValueDepth.
absl::StatusOr<Value> Convert(  // NOLINT(misc-no-recursion)
    Runtime& runtime, const boost::json::value& json, bool trusted, int depth) {
  if (depth > kMaxValueDepth) return TooDeep();
  switch (json.kind()) {
    case boost::json::kind::null:
      return Value();
    case boost::json::kind::bool_:
      return Value::Bool(json.get_bool());
    case boost::json::kind::int64:
      return Value::Int(json.get_int64());
    case boost::json::kind::uint64: {
      const uint64_t u = json.get_uint64();
      if (u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Value::Float(static_cast<double>(u));
      }
      return Value::Int(static_cast<int64_t>(u));
    }
    case boost::json::kind::double_:
      return Value::Float(json.get_double());
    case boost::json::kind::string:
      return NewText(runtime, json.get_string(), trusted);
    case boost::json::kind::array: {
      std::vector<Value> items;
      items.reserve(json.get_array().size());
      for (const boost::json::value& item : json.get_array()) {
        STRATA_ASSIGN_OR_RETURN(Value v, Convert(runtime, item, trusted, depth + 1));
        items.push_back(std::move(v));
      }
      return runtime.heap().NewList(std::move(items));
    }
    case boost::json::kind::object: {
      Dict* dict = runtime.heap().NewDict();
      for (const boost::json::key_value_pair& pair : json.get_object()) {
        const std::string_view key(pair.key().data(), pair.key().size());
        const boost::json::string* text = pair.value().if_string();
        const bool known_role = key == "role" && text != nullptr &&
                                IsKnownRole(std::string_view(text->data(), text->size()));
        STRATA_ASSIGN_OR_RETURN(Value v,
                                Convert(runtime, pair.value(), trusted || known_role, depth + 1));
        dict->SetText(NewText(runtime, boost::json::string(pair.key()), trusted), std::move(v));
      }
      return Value(dict);
    }
  }
  return Value();
}

void AppendHex(std::string& out, uint32_t unit) {
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out.push_back(kHexDigits[unit >> shift & 0xF]);
}

// The escape JSON needs for `c`; empty when it stands for itself.
std::string Escape(char32_t c, bool ascii) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      break;
  }
  std::string out;
  if (c < 0x20 || (ascii && c > 0x7E && c < 0x10000)) {
    AppendHex(out, c);
  } else if (ascii && c >= 0x10000 && c <= 0x10FFFF) {
    AppendHex(out, 0xD800 + ((c - 0x10000) >> 10));
    AppendHex(out, 0xDC00 + ((c - 0x10000) & 0x3FF));
  }
  return out;
}

void AppendQuoted(const Text& text, bool ascii, Text& out) {
  const std::string& bytes = text.bytes();
  out.AppendTrusted("\"");
  size_t copied = 0;
  for (size_t i = 0; i < bytes.size();) {
    const char plain = bytes[i];
    if (plain >= 0x20 && plain != '"' && plain != '\\') {  // most characters
      ++i;
      continue;
    }
    const CodePoint c = DecodeAt(bytes, i);
    const std::string escape = Escape(c.value, ascii);
    if (!escape.empty()) {
      out.Append(text, copied, i);
      out.AppendAs(text, i, escape);
      copied = i + c.length;
    }
    i += c.length;
  }
  out.Append(text, copied, bytes.size());
  out.AppendTrusted("\"");
}

std::string FloatLiteral(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
  return FormatFloat(d);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style, Text& out)
      : runtime_(runtime), style_(style), out_(out) {}

  // Depth is bounded by kMaxValueDepth.
  absl::Status Write(const Value& value, int depth) {  // NOLINT(misc-no-recursion)
    if (depth > kMaxValueDepth) return TooDeep();
    STRATA_RETURN_IF_ERROR(runtime_.Work(1));
    STRATA_RETURN_IF_ERROR(runtime_.Fits(out_.size()));
    if (value.IsString()) {
      STRATA_RETURN_IF_ERROR(runtime_.Scan(value.text().size()));
      AppendQuoted(value.text(), style_.ascii, out_);
    } else if (value.IsNone()) {
      out_.AppendTrusted("null");
    } else if (value.IsBool()) {
      out_.AppendTrusted(value.AsBool() ? "true" : "false");
    } else if (value.IsInt()) {
      out_.AppendTrusted(std::to_string(*value.AsInt()));
    } else if (value.IsFloat()) {
      out_.AppendTrusted(FloatLiteral(value.AsDouble()));
    } else if (value.IsList()) {
      return WriteList(value.list(), depth);
    } else if (value.IsDict()) {
      return WriteDict(value.dict(), depth);
    } else {
      return TypeError(
          absl::StrCat("Object of type ", A(value.TypeName()), " is not JSON serializable"));
    }
    return absl::OkStatus();
  }

 private:
  void NewLine(int depth) {
    if (!style_.pretty) return;
    out_.AppendTrusted("\n");
    for (int i = 0; i < depth; ++i) out_.AppendTrusted(style_.indent);
  }

  absl::Status WriteList(const List& list, int depth) {  // NOLINT(misc-no-recursion)
    if (list.items.empty()) {
      out_.AppendTrusted("[]");
      return absl::OkStatus();
    }
    out_.AppendTrusted("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i != 0) out_.AppendTrusted(style_.item_separator);
      NewLine(depth + 1);
      STRATA_RETURN_IF_ERROR(Write(list.items[i], depth + 1));
    }
    NewLine(depth);
    out_.AppendTrusted("]");
    return absl::OkStatus();
  }

  absl::Status WriteKey(const Value& key) {
    if (key.IsString()) {
      AppendQuoted(key.text(), style_.ascii, out_);
      return absl::OkStatus();
    }
    if (!key.IsNumber() && !key.IsNone()) {
      return TypeError(
          absl::StrCat("keys must be str, int, float, bool or None, not ", A(key.TypeName())));
    }
    out_.AppendTrusted("\"");
    STRATA_RETURN_IF_ERROR(Write(key, 0));
    out_.AppendTrusted("\"");
    return absl::OkStatus();
  }

  absl::Status WriteDict(const Dict& dict, int depth) {  // NOLINT(misc-no-recursion)
    if (dict.size() == 0) {
      out_.AppendTrusted("{}");
      return absl::OkStatus();
    }
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) STRATA_RETURN_IF_ERROR(Sort(entries));
    out_.AppendTrusted("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i != 0) out_.AppendTrusted(style_.item_separator);
      NewLine(depth + 1);
      STRATA_RETURN_IF_ERROR(WriteKey(entries[i]->key));
      out_.AppendTrusted(style_.key_separator);
      STRATA_RETURN_IF_ERROR(Write(entries[i]->value, depth + 1));
    }
    NewLine(depth);
    out_.AppendTrusted("}");
    return absl::OkStatus();
  }

  absl::Status Sort(std::vector<const Dict::Entry*>& entries) {
    STRATA_RETURN_IF_ERROR(runtime_.Work(entries.size()));
    absl::Status failure;
    std::stable_sort(entries.begin(), entries.end(),
                     [&](const Dict::Entry* a, const Dict::Entry* b) {
                       const absl::StatusOr<int> order = Order(runtime_, a->key, b->key);
                       if (!order.ok()) failure = order.status();
                       return order.ok() && *order < 0;
                     });
    return failure;
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  Text& out_;
};

}  // namespace

absl::StatusOr<Value> FromJson(Runtime& runtime, const boost::json::value& json, bool trusted) {
  return Convert(runtime, json, trusted, 0);
}

absl::Status AppendJson(Runtime& runtime, const Value& value, const JsonStyle& style, Text& out) {
  return JsonWriter(runtime, style, out).Write(value, 0);
}

}  // namespace strata::gateway::jinja
