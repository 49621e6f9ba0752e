// Functions every template can call.
#include <algorithm>
#include <array>
#include <ctime>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "services/gateway/template/builtins.h"
#include "services/gateway/template/chat_template.h"
#include "services/gateway/template/format.h"
#include "services/gateway/template/operators.h"

#include "absl/strings/cord.h"

namespace strata::gateway::jinja {
namespace {

// namespace(a=1): the one kind of object whose attributes can be set, also from inner scopes.
class Namespace : public Object {
 public:
  std::string_view TypeName() const override { return "Namespace"; }
  std::optional<Value> Attribute(Runtime&, std::string_view name) override {
    for (const auto& [key, value] : values_) {
      if (key == name) return value;
    }
    return std::nullopt;
  }
  bool Assign(std::string_view name, const Value& value) override {
    for (auto& [key, current] : values_) {
      if (key == name) {
        current = value;
        return true;
      }
    }
    values_.emplace_back(std::string(name), value);
    return true;
  }

 private:
  std::vector<std::pair<std::string, Value>> values_;
};

// cycler('a', 'b'): .next(), .current, .reset()
class Cycler : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  std::string_view TypeName() const override { return "Cycler"; }
  std::optional<Value> Attribute(Runtime& runtime, std::string_view name) override;
  Value Next() {
    Value item = items_[position_];
    position_ = (position_ + 1) % items_.size();
    return item;
  }
  void Reset() { position_ = 0; }

 private:
  const std::vector<Value> items_;
  size_t position_ = 0;
};

class CyclerMethod : public Object {
 public:
  CyclerMethod(Cycler& cycler, bool next) : cycler_(cycler), next_(next) {}
  std::string_view TypeName() const override { return "method"; }
  bool Callable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime&, const Args&) override {
    if (next_) return cycler_.Next();
    cycler_.Reset();
    return Value();
  }

 private:
  Cycler& cycler_;
  const bool next_;
};

std::optional<Value> Cycler::Attribute(Runtime& runtime, std::string_view name) {
  if (name == "current") return items_[position_];
  if (name == "next" || name == "reset") {
    return Value(runtime.heap().Own(std::make_unique<CyclerMethod>(*this, name == "next")));
  }
  return std::nullopt;
}

// joiner(', '): prints nothing the first time it is called, then the separator.
class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string_view TypeName() const override { return "Joiner"; }
  bool Callable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime& runtime, const Args&) override {
    if (std::exchange(used_, true)) return separator_;
    return runtime.heap().NewTrusted("");
  }

 private:
  const Value separator_;
  bool used_ = false;
};

absl::StatusOr<Value> MakeNamespace(Runtime& runtime, const Value&, const Args& args) {
  auto made = std::make_unique<Namespace>();
  for (const Value& source : args.positional) {
    if (!source.IsDict()) return TypeError("namespace(...) takes mappings and keywords");
    for (const Dict::Entry& entry : source.dict().entries()) {
      if (entry.key.IsString()) made->Assign(entry.key.bytes(), entry.value);
    }
  }
  for (const auto& [name, value] : args.named) made->Assign(name, value);
  return Value(runtime.heap().Own(std::move(made)));
}

absl::StatusOr<Value> MakeDict(Runtime& runtime, const Value&, const Args& args) {
  Dict* dict = runtime.heap().NewDict();
  if (args.positional.size() > 1) return TypeError("dict(...) takes at most one mapping");
  for (const Value& source : args.positional) {
    if (source.IsDict()) {
      STRATA_RETURN_IF_ERROR(runtime.Room(source.dict().size() * sizeof(Dict::Entry)));
      *dict = source.dict();
      continue;
    }
    STRATA_ASSIGN_OR_RETURN(const std::vector<Value> pairs, Iterate(runtime, source));
    for (const Value& pair : pairs) {
      STRATA_ASSIGN_OR_RETURN(const std::vector<Value> parts, Iterate(runtime, pair));
      if (parts.size() != 2) return TypeError("dict(...) needs pairs of key and value");
      STRATA_RETURN_IF_ERROR(dict->Set(parts[0], parts[1]));
    }
  }
  for (const auto& [name, value] : args.named) {
    dict->SetText(runtime.heap().NewTrusted(std::string(name)), value);
  }
  return Value(dict);
}

absl::StatusOr<Value> MakeRange(Runtime& runtime, const Value&, const Args& args) {
  std::array<int64_t, 3> bounds = {0, 0, 1};
  const size_t n = args.positional.size();
  if (n == 0 || n > 3 || !args.named.empty()) return TypeError("range takes 1 to 3 integers");
  for (size_t i = 0; i < n; ++i) {
    const std::optional<int64_t> bound = args.positional[i].AsInt();
    if (!bound) {
      return TypeError(
          absl::StrCat("range needs integers, not ", A(args.positional[i].TypeName())));
    }
    bounds[n == 1 ? 1 : i] = *bound;
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) return absl::FailedPreconditionError("range step cannot be zero");
  const bool empty = step > 0 ? start >= stop : start <= stop;
  std::vector<Value> items;
  if (!empty) {
    const auto magnitude = [](int64_t v) {
      return v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
    };
    const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                       : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
    const uint64_t count = (distance - 1) / magnitude(step) + 1;
    if (count > static_cast<uint64_t>(runtime.limits().max_range)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "range is too long: ", count, " elements, limit ", runtime.limits().max_range));
    }
    STRATA_RETURN_IF_ERROR(runtime.Room(count * sizeof(Value)));
    items.reserve(count);
    int64_t value = start;
    for (uint64_t i = 0; i < count; ++i) {
      items.push_back(Value::Int(value));
      if (i + 1 < count) value += step;
    }
  }
  return runtime.heap().NewList(std::move(items));
}

absl::StatusOr<Value> MakeCycler(Runtime& runtime, const Value&, const Args& args) {
  if (args.positional.empty()) return TypeError("cycler needs at least one item");
  return Value(runtime.heap().Own(std::make_unique<Cycler>(args.positional)));
}

absl::StatusOr<Value> MakeJoiner(Runtime& runtime, const Value&, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("joiner", args, {"sep"}));
  return Value(runtime.heap().Own(
      std::make_unique<Joiner>(bound.Has(0) ? bound[0] : runtime.heap().NewTrusted(", "))));
}

absl::StatusOr<Value> RaiseException(Runtime& runtime, const Value&, const Args& args) {
  Text message;
  if (!args.positional.empty()) {
    STRATA_RETURN_IF_ERROR(AppendStr(runtime, args.positional[0], message));
  }
  return TemplateRaised(message.bytes());
}

absl::StatusOr<Value> StrftimeNow(Runtime& runtime, const Value&, const Args& args) {
  STRATA_ASSIGN_OR_RETURN(const Bound bound, Bound::Of("strftime_now", args, {"format"}, 1));
  if (!bound[0].IsString() || bound[0].text().size() > 1024) {
    return TypeError("strftime_now needs a format string of at most 1024 bytes");
  }
  const std::time_t now = static_cast<std::time_t>(runtime.now_seconds());
  std::tm parts{};
  localtime_r(&now, &parts);
  // A trailing character tells an empty result from one that did not fit.
  const std::string format = bound[0].bytes() + "|";
  std::array<char, 8192> buffer;
  const size_t length = std::strftime(buffer.data(), buffer.size(), format.c_str(), &parts);
  if (length == 0) return absl::FailedPreconditionError("strftime_now: result is too long");
  return runtime.heap().NewTrusted(std::string(buffer.data(), length - 1));
}

constexpr Named<FilterFunction> kGlobals[] = {
    {"namespace", MakeNamespace},  {"range", MakeRange}, {"raise_exception", RaiseException},
    {"strftime_now", StrftimeNow}, {"dict", MakeDict},   {"cycler", MakeCycler},
    {"joiner", MakeJoiner},
};

}  // namespace

FilterFunction FindGlobal(std::string_view name) {
  const auto* found = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                   [&](const auto& entry) { return entry.name == name; });
  return found == std::end(kGlobals) ? nullptr : found->function;
}

}  // namespace strata::gateway::jinja
