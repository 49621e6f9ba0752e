// The values a template computes with: Python's None, bool, int, float, str, list, tuple and dict,
// plus Jinja's undefined, namespaces, callables and loop objects.
//
// Ownership: containers and objects belong to the Heap of one rendering and are referred to by
// plain pointers, so a template can build cycles or very deep structures and everything is still
// freed in one flat sweep at the end. Strings are immutable and reference counted. A Value must not
// outlive the Heap it came from (the only values without a heap are a template's constants).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "services/gateway/template/text.h"

#include "absl/status/statusor.h"

namespace strata::gateway::jinja {

class Heap;
class Runtime;
struct List;
struct Dict;
struct Object;

// A string; tells its heap when the bytes are released.
struct TextCell {
  TextCell(Text t, Heap* owner);
  ~TextCell();
  TextCell(const TextCell&) = delete;
  TextCell& operator=(const TextCell&) = delete;

  const Text text;
  Heap* const heap;
};
using TextPtr = std::shared_ptr<const TextCell>;

// A name or attribute that does not exist. Printing it gives "", using it is an error that names
// it.
struct Undefined {
  std::string_view name;   // lives in the template or the heap
  std::string_view owner;  // type of the object the attribute was looked up on; empty for names
};
struct None {};

class Value {
 public:
  Value() : data_(None{}) {}
  static Value Bool(bool b) { return Value(Data(b)); }
  static Value Int(int64_t i) { return Value(Data(i)); }
  static Value Float(double d) { return Value(Data(d)); }
  static Value Missing(std::string_view name, std::string_view owner = {}) {
    return Value(Data(Undefined{name, owner}));
  }
  explicit Value(TextPtr text) : data_(std::move(text)) {}
  explicit Value(List* list) : data_(list) {}
  explicit Value(Dict* dict) : data_(dict) {}
  explicit Value(Object* object) : data_(object) {}

  bool IsUndefined() const { return std::holds_alternative<Undefined>(data_); }
  bool IsNone() const { return std::holds_alternative<None>(data_); }
  bool IsBool() const { return std::holds_alternative<bool>(data_); }
  bool IsInt() const { return std::holds_alternative<int64_t>(data_); }
  bool IsFloat() const { return std::holds_alternative<double>(data_); }
  bool IsNumber() const { return IsBool() || IsInt() || IsFloat(); }  // bool is an int in Python
  bool IsString() const { return std::holds_alternative<TextPtr>(data_); }
  bool IsList() const { return std::holds_alternative<List*>(data_); }  // lists and tuples
  bool IsDict() const { return std::holds_alternative<Dict*>(data_); }
  bool IsObject() const { return std::holds_alternative<Object*>(data_); }

  const Undefined& undefined() const { return std::get<Undefined>(data_); }
  const Text& text() const { return std::get<TextPtr>(data_)->text; }
  const std::string& bytes() const { return text().bytes(); }
  List& list() const { return *std::get<List*>(data_); }
  Dict& dict() const { return *std::get<Dict*>(data_); }
  Object& object() const { return *std::get<Object*>(data_); }
  // Bool and int as an integer; nothing for the rest.
  std::optional<int64_t> AsInt() const;
  // Any number as a double; only for IsNumber().
  double AsDouble() const;
  bool AsBool() const { return std::get<bool>(data_); }

  // Python's name of the type, for messages: "str", "list", "Undefined", ...
  std::string_view TypeName() const;
  // bool(value)
  bool Truthy() const;

 private:
  using Data = std::variant<Undefined, None, bool, int64_t, double, TextPtr, List*, Dict*, Object*>;
  explicit Value(Data data) : data_(std::move(data)) {}
  Data data_;
};

struct List {
  std::vector<Value> items;
  bool tuple = false;
  bool group = false;  // a pair from groupby, with attributes "grouper" and "list"
};

// Insertion-ordered mapping. Keys are strings, numbers, booleans, None or tuples of those; 1, 1.0
// and True are the same key, as in Python.
struct Dict {
 public:
  struct Entry {
    Value key;
    Value value;
  };

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Value* Find(std::string_view key) const;
  // Error when `key` cannot be a key (list, dict).
  absl::StatusOr<const Value*> Find(const Value& key) const;
  absl::Status Set(Value key, Value value);
  // For keys known to be strings.
  void SetText(Value key, Value value);
  absl::StatusOr<bool> Erase(const Value& key);
  void Clear();

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  std::optional<size_t> IndexOf(std::string_view canonical) const;
  void Insert(std::string canonical, Value key, Value value);

  std::vector<Entry> entries_;
  std::vector<std::string> canonical_;  // of each entry, see CanonicalKey in value.cc
  // Filled once the mapping is too long for a linear search.
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> index_;
};

// Arguments of a call, already evaluated.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

// Whatever is neither data nor undefined: namespaces, macros, bound methods, globals, loop.
struct Object {
  virtual ~Object() = default;
  virtual std::string_view TypeName() const = 0;
  // The attribute, or nothing when there is no such one.
  virtual std::optional<Value> Attribute(Runtime& runtime, std::string_view name);
  virtual bool Callable() const { return false; }
  virtual absl::StatusOr<Value> Call(Runtime& runtime, const Args& args);
  // `{% set object.name = value %}`; false when this kind of object does not allow it.
  virtual bool Assign(std::string_view name, const Value& value);
};

// Owner of everything one rendering allocates, with a count of the bytes alive.
class Heap {
 public:
  Heap() = default;
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  Value NewText(Text text);
  Value NewTrusted(std::string bytes) { return NewText(Text::Trusted(std::move(bytes))); }
  Value NewList(std::vector<Value> items, bool tuple = false);
  Value NewPair(Value first, Value second);
  Dict* NewDict();
  // Takes ownership.
  template <typename T>
  T* Own(std::unique_ptr<T> object) {
    T* raw = object.get();
    Count(sizeof(T));
    objects_.push_back(std::move(object));
    return raw;
  }
  // A copy of `name` that lives as long as the heap.
  std::string_view Intern(std::string_view name);

  size_t live_bytes() const { return live_bytes_; }
  void Count(size_t bytes) { live_bytes_ += bytes; }
  void Release(size_t bytes) { live_bytes_ -= bytes; }

 private:
  size_t live_bytes_ = 0;  // first member: strings held by the containers below count down in it
  std::deque<std::string> names_;
  std::deque<std::unique_ptr<Object>> objects_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
};

}  // namespace strata::gateway::jinja
