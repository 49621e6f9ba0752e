// Attributes, items, slices and iteration.
#include <algorithm>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "services/gateway/template/builtins.h"
#include "services/gateway/template/operators.h"
#include "services/gateway/template/utf8.h"

namespace strata::gateway::jinja {
namespace {

// `value.method` that is not called on the spot.
struct BoundMethod : Object {
  BoundMethod(Value s, FilterFunction f) : self(std::move(s)), function(f) {}
  std::string_view TypeName() const override { return "builtin_function_or_method"; }
  bool Callable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime& runtime, const Args& args) override {
    return function(runtime, self, args);
  }
  const Value self;
  const FilterFunction function;
};

Value Missing(Runtime& runtime, const Value& object, std::string_view name) {
  return Value::Missing(runtime.heap().Intern(name), object.TypeName());
}

std::optional<Value> Method(Runtime& runtime, const Value& object, std::string_view name) {
  const FilterFunction method = FindMethod(object, name);
  if (method == nullptr) return std::nullopt;
  return Value(runtime.heap().Own(std::make_unique<BoundMethod>(object, method)));
}

Value CharacterAt(Runtime& runtime, const Text& text, size_t begin) {
  return runtime.heap().NewText(text.Sub(begin, begin + DecodeAt(text.bytes(), begin).length));
}

// Byte starts of all characters, with the total size at the end.
std::vector<size_t> CharacterStarts(const std::string& bytes) {
  std::vector<size_t> starts;
  for (size_t i = 0; i < bytes.size(); i += DecodeAt(bytes, i).length) starts.push_back(i);
  starts.push_back(bytes.size());
  return starts;
}

// Python's slice.indices(): start, stop, step clipped to a sequence of `length`.
struct Range {
  int64_t start;
  int64_t stop;
  int64_t step;
};

absl::StatusOr<std::optional<int64_t>> SliceIndex(const Value& v) {
  if (v.IsNone()) return std::optional<int64_t>();
  if (const std::optional<int64_t> i = v.AsInt()) return i;
  if (v.IsUndefined()) return UndefinedError(v.undefined());
  return TypeError("slice indices must be integers or None");
}

absl::StatusOr<Range> SliceRange(int64_t length, const Value& start, const Value& stop,
                                 const Value& step) {
  STRATA_ASSIGN_OR_RETURN(const std::optional<int64_t> by, SliceIndex(step));
  STRATA_ASSIGN_OR_RETURN(const std::optional<int64_t> from, SliceIndex(start));
  STRATA_ASSIGN_OR_RETURN(const std::optional<int64_t> to, SliceIndex(stop));
  Range range{0, 0, by.value_or(1)};
  if (range.step == 0) return absl::FailedPreconditionError("slice step cannot be zero");
  const int64_t low = range.step < 0 ? -1 : 0;
  const int64_t high = range.step < 0 ? length - 1 : length;
  const auto clip = [&](int64_t i) {
    return std::clamp(i < 0 && i >= -length ? i + length : i < 0 ? low : i, low, high);
  };
  range.start = from ? clip(*from) : range.step < 0 ? high : low;
  range.stop = to ? clip(*to) : range.step < 0 ? low : high;
  // A step longer than the sequence takes one element either way; clipping it avoids overflow.
  range.step = std::clamp(range.step, -length - 1, length + 1);
  return range;
}

}  // namespace

absl::StatusOr<Value> GetAttribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.IsUndefined()) return UndefinedError(object.undefined());
  if (object.IsObject()) {
    if (std::optional<Value> found = object.object().Attribute(runtime, name)) {
      return *std::move(found);
    }
    return Missing(runtime, object, name);
  }
  if (std::optional<Value> method = Method(runtime, object, name)) return *std::move(method);
  if (object.IsDict()) {
    if (const Value* entry = object.dict().Find(name)) return *entry;
  }
  if (object.IsList() && object.list().group) {
    if (name == "grouper") return object.list().items[0];
    if (name == "list") return object.list().items[1];
  }
  return Missing(runtime, object, name);
}

absl::StatusOr<Value> GetItem(Runtime& runtime, const Value& object, const Value& key) {
  if (object.IsUndefined()) return UndefinedError(object.undefined());
  if (object.IsDict()) {
    const absl::StatusOr<const Value*> entry = object.dict().Find(key);
    if (entry.ok() && *entry != nullptr) return **entry;
  }
  if (const std::optional<int64_t> i = key.AsInt()) {
    if (object.IsList()) {
      const std::vector<Value>& items = object.list().items;
      const int64_t n = static_cast<int64_t>(items.size());
      const int64_t index = *i < 0 ? *i + n : *i;
      if (index >= 0 && index < n) return items[static_cast<size_t>(index)];
    } else if (object.IsString()) {
      const Text& text = object.text();
      STRATA_RETURN_IF_ERROR(runtime.Scan(text.size()));
      const std::vector<size_t> starts = CharacterStarts(text.bytes());
      const int64_t n = static_cast<int64_t>(starts.size()) - 1;
      const int64_t index = *i < 0 ? *i + n : *i;
      if (index >= 0 && index < n) {
        return CharacterAt(runtime, text, starts[static_cast<size_t>(index)]);
      }
    }
    return Value::Missing("element", object.TypeName());
  }
  if (!key.IsString()) return Value::Missing("element", object.TypeName());
  if (object.IsObject()) return GetAttribute(runtime, object, key.bytes());
  if (std::optional<Value> method = Method(runtime, object, key.bytes())) {
    return *std::move(method);
  }
  return Missing(runtime, object, key.bytes());
}

absl::StatusOr<Value> SliceValue(Runtime& runtime, const Value& object, const Value& start,
                                 const Value& stop, const Value& step) {
  if (object.IsUndefined()) return UndefinedError(object.undefined());
  if (object.IsString()) {
    const Text& text = object.text();
    STRATA_RETURN_IF_ERROR(runtime.Room(text.size()));
    const std::vector<size_t> starts = CharacterStarts(text.bytes());
    STRATA_ASSIGN_OR_RETURN(const Range range,
                            SliceRange(static_cast<int64_t>(starts.size()) - 1, start, stop, step));
    Text out;
    if (range.step == 1) {
      const size_t from = starts[static_cast<size_t>(range.start)];
      out = text.Sub(from, std::max(from, starts[static_cast<size_t>(range.stop)]));
    } else {
      for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop;
           i += range.step) {
        const size_t at = static_cast<size_t>(i);
        out.Append(text, starts[at], starts[at + 1]);
      }
    }
    return runtime.heap().NewText(std::move(out));
  }
  if (object.IsList()) {
    const std::vector<Value>& items = object.list().items;
    STRATA_RETURN_IF_ERROR(runtime.Room(items.size() * sizeof(Value)));
    STRATA_ASSIGN_OR_RETURN(const Range range,
                            SliceRange(static_cast<int64_t>(items.size()), start, stop, step));
    std::vector<Value> out;
    for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop;
         i += range.step) {
      out.push_back(items[static_cast<size_t>(i)]);
    }
    return runtime.heap().NewList(std::move(out), object.list().tuple);
  }
  if (object.IsDict()) return TypeError("unhashable type: 'slice': a mapping cannot be sliced");
  return Value::Missing("slice", object.TypeName());
}

absl::StatusOr<std::vector<Value>> Iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (value.IsList()) {
    STRATA_RETURN_IF_ERROR(runtime.Room(value.list().items.size() * sizeof(Value)));
    return value.list().items;
  }
  if (value.IsDict()) {
    STRATA_RETURN_IF_ERROR(runtime.Room(value.dict().size() * sizeof(Value)));
    items.reserve(value.dict().size());
    for (const Dict::Entry& entry : value.dict().entries()) items.push_back(entry.key);
    return items;
  }
  if (value.IsString()) {
    const Text& text = value.text();
    // A character as a value of its own is far larger than its byte.
    STRATA_RETURN_IF_ERROR(runtime.Work(text.size()));
    for (size_t i = 0; i < text.size(); i += DecodeAt(text.bytes(), i).length) {
      items.push_back(CharacterAt(runtime, text, i));
    }
    return items;
  }
  if (value.IsUndefined()) return items;
  return TypeError(absl::StrCat("'", A(value.TypeName()), "' object is not iterable"));
}

absl::StatusOr<int64_t> Length(Runtime& runtime, const Value& value) {
  if (value.IsString()) {
    STRATA_RETURN_IF_ERROR(runtime.Scan(value.text().size()));
    return static_cast<int64_t>(CountCodePoints(value.bytes()));
  }
  if (value.IsList()) return static_cast<int64_t>(value.list().items.size());
  if (value.IsDict()) return static_cast<int64_t>(value.dict().size());
  if (value.IsUndefined()) return 0;
  return TypeError(absl::StrCat("object of type '", A(value.TypeName()), "' has no len()"));
}

}  // namespace strata::gateway::jinja
