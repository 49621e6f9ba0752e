#include "services/gateway/template/value.h"

#include <cmath>
#include <cstdio>

#include "common/base/status.h"

namespace strata::gateway::jinja {
namespace {

constexpr size_t kLinearSearch = 8;
constexpr int kMaxKeyDepth = 32;  // tuples of tuples

// A byte string that is equal for equal keys: a letter for the type, then the value. Numbers that
// compare equal share one form.
absl::Status AppendCanonical(const Value& key, int depth, std::string& out) {
  if (key.IsString()) {
    absl::StrAppend(&out, "s", key.bytes().size(), ":", key.bytes());
  } else if (const std::optional<int64_t> i = key.AsInt()) {
    absl::StrAppend(&out, "i", *i, ";");
  } else if (key.IsFloat()) {
    const double d = key.AsDouble();
    if (d == std::floor(d) && std::fabs(d) < 9e18) {
      absl::StrAppend(&out, "i", static_cast<int64_t>(d), ";");
    } else {
      char buffer[40];
      std::snprintf(buffer, sizeof(buffer), "f%a;", d);
      out += buffer;
    }
  } else if (key.IsNone() || key.IsUndefined()) {
    out += key.IsNone() ? "n" : "u";
  } else if (key.IsList() && key.list().tuple && depth < kMaxKeyDepth) {
    out += "(";
    for (const Value& item : key.list().items) {
      STRATA_RETURN_IF_ERROR(AppendCanonical(item, depth + 1, out));
    }
    out += ")";
  } else {
    return absl::FailedPreconditionError(
        absl::StrCat("unhashable type: '", A(key.TypeName()), "' cannot be a mapping's key"));
  }
  return absl::OkStatus();
}

// Strings, by far the most common keys, stand for themselves behind one letter.
absl::StatusOr<std::string> CanonicalKey(const Value& key) {
  if (key.IsString()) return absl::StrCat("s", key.bytes());
  std::string out = "c";
  STRATA_RETURN_IF_ERROR(AppendCanonical(key, 0, out));
  return out;
}

}  // namespace

TextCell::TextCell(Text t, Heap* owner) : text(std::move(t)), heap(owner) {
  if (heap != nullptr) heap->Count(text.size() + sizeof(TextCell));
}
TextCell::~TextCell() {
  if (heap != nullptr) heap->Release(text.size() + sizeof(TextCell));
}

std::optional<int64_t> Value::AsInt() const {
  if (IsInt()) return std::get<int64_t>(data_);
  if (IsBool()) return std::get<bool>(data_) ? 1 : 0;
  return std::nullopt;
}

double Value::AsDouble() const {
  if (IsFloat()) return std::get<double>(data_);
  return static_cast<double>(AsInt().value_or(0));
}

std::string_view Value::TypeName() const {
  if (IsUndefined()) return "Undefined";
  if (IsNone()) return "NoneType";
  if (IsBool()) return "bool";
  if (IsInt()) return "int";
  if (IsFloat()) return "float";
  if (IsString()) return "str";
  if (IsList()) return list().tuple ? "tuple" : "list";
  if (IsDict()) return "dict";
  return object().TypeName();
}

bool Value::Truthy() const {
  if (IsUndefined() || IsNone()) return false;
  if (IsNumber()) return AsDouble() != 0;
  if (IsString()) return !text().empty();
  if (IsList()) return !list().items.empty();
  if (IsDict()) return dict().size() != 0;
  return true;
}

std::optional<size_t> Dict::IndexOf(std::string_view canonical) const {
  if (canonical_.size() <= kLinearSearch) {
    for (size_t i = 0; i < canonical_.size(); ++i) {
      if (canonical_[i] == canonical) return i;
    }
    return std::nullopt;
  }
  const auto found = index_.find(canonical);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

const Value* Dict::Find(std::string_view key) const {
  if (canonical_.size() <= kLinearSearch) {
    for (size_t i = 0; i < canonical_.size(); ++i) {
      const std::string_view have = canonical_[i];
      if (have.size() == key.size() + 1 && have[0] == 's' && have.substr(1) == key) {
        return &entries_[i].value;
      }
    }
    return nullptr;
  }
  const std::optional<size_t> found = IndexOf(absl::StrCat("s", A(key)));
  return found ? &entries_[*found].value : nullptr;
}

absl::StatusOr<const Value*> Dict::Find(const Value& key) const {
  if (key.IsString()) return Find(std::string_view(key.bytes()));
  STRATA_ASSIGN_OR_RETURN(const std::string canonical, CanonicalKey(key));
  const std::optional<size_t> found = IndexOf(canonical);
  return found ? &entries_[*found].value : nullptr;
}

void Dict::Insert(std::string canonical, Value key, Value value) {
  if (const std::optional<size_t> found = IndexOf(canonical)) {
    entries_[*found].value = std::move(value);
    return;
  }
  entries_.push_back({std::move(key), std::move(value)});
  canonical_.push_back(std::move(canonical));
  if (canonical_.size() == kLinearSearch + 1) {
    for (size_t i = 0; i < canonical_.size(); ++i) index_.emplace(canonical_[i], i);
  } else if (canonical_.size() > kLinearSearch) {
    index_.emplace(canonical_.back(), canonical_.size() - 1);
  }
}

absl::Status Dict::Set(Value key, Value value) {
  STRATA_ASSIGN_OR_RETURN(std::string canonical, CanonicalKey(key));
  Insert(std::move(canonical), std::move(key), std::move(value));
  return absl::OkStatus();
}

void Dict::SetText(Value key, Value value) {
  std::string canonical = absl::StrCat("s", key.bytes());
  Insert(std::move(canonical), std::move(key), std::move(value));
}

absl::StatusOr<bool> Dict::Erase(const Value& key) {
  STRATA_ASSIGN_OR_RETURN(const std::string canonical, CanonicalKey(key));
  const std::optional<size_t> found = IndexOf(canonical);
  if (!found) return false;
  entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(*found));
  canonical_.erase(canonical_.begin() + static_cast<ptrdiff_t>(*found));
  index_.clear();
  if (canonical_.size() > kLinearSearch) {
    for (size_t i = 0; i < canonical_.size(); ++i) index_.emplace(canonical_[i], i);
  }
  return true;
}

void Dict::Clear() {
  entries_.clear();
  canonical_.clear();
  index_.clear();
}

std::optional<Value> Object::Attribute(Runtime&, std::string_view) { return std::nullopt; }
absl::StatusOr<Value> Object::Call(Runtime&, const Args&) {
  return absl::FailedPreconditionError(
      absl::StrCat("'", A(TypeName()), "' object is not callable"));
}
bool Object::Assign(std::string_view, const Value&) { return false; }

Value Heap::NewText(Text text) {
  return Value(std::make_shared<const TextCell>(std::move(text), this));
}

Value Heap::NewList(std::vector<Value> items, bool tuple) {
  Count(sizeof(List) + items.size() * sizeof(Value));
  lists_.push_back(List{std::move(items), tuple, false});
  return Value(&lists_.back());
}

Value Heap::NewPair(Value first, Value second) {
  std::vector<Value> items;
  items.reserve(2);
  items.push_back(std::move(first));
  items.push_back(std::move(second));
  return NewList(std::move(items), true);
}

Dict* Heap::NewDict() {
  Count(sizeof(Dict));
  dicts_.emplace_back();
  return &dicts_.back();
}

std::string_view Heap::Intern(std::string_view name) {
  Count(name.size() + sizeof(std::string));
  names_.emplace_back(name);
  return names_.back();
}

}  // namespace strata::gateway::jinja
