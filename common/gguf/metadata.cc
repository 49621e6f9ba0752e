#include "common/gguf/metadata.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "common/gguf/byte_reader.h"
#include "common/gguf/printable.h"

namespace strata::gguf {
namespace {

template <typename T>
T Load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

// Any integer type fits in sign and magnitude of 64 bits.
struct Integer {
  bool negative;
  uint64_t bits;  // two's complement if negative
};

std::optional<Integer> ReadInteger(ValueType type, const std::byte* p) {
  const auto from_signed = [](int64_t v) { return Integer{v < 0, static_cast<uint64_t>(v)}; };
  switch (type) {
    case ValueType::kU8:
      return Integer{false, Load<uint8_t>(p)};
    case ValueType::kU16:
      return Integer{false, Load<uint16_t>(p)};
    case ValueType::kU32:
      return Integer{false, Load<uint32_t>(p)};
    case ValueType::kU64:
      return Integer{false, Load<uint64_t>(p)};
    case ValueType::kI8:
      return from_signed(Load<int8_t>(p));
    case ValueType::kI16:
      return from_signed(Load<int16_t>(p));
    case ValueType::kI32:
      return from_signed(Load<int32_t>(p));
    case ValueType::kI64:
      return from_signed(Load<int64_t>(p));
    default:
      return std::nullopt;
  }
}

std::optional<uint64_t> ReadUint(ValueType type, const std::byte* p) {
  const std::optional<Integer> value = ReadInteger(type, p);
  if (!value || value->negative) return std::nullopt;
  return value->bits;
}

std::optional<int64_t> ReadInt(ValueType type, const std::byte* p) {
  const std::optional<Integer> value = ReadInteger(type, p);
  if (!value) return std::nullopt;
  if (!value->negative && value->bits > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return std::nullopt;
  }
  return static_cast<int64_t>(value->bits);
}

std::optional<double> ReadFloat(ValueType type, const std::byte* p) {
  if (type == ValueType::kF32) return Load<float>(p);
  if (type == ValueType::kF64) return Load<double>(p);
  const std::optional<Integer> value = ReadInteger(type, p);
  if (!value) return std::nullopt;
  return value->negative ? static_cast<double>(static_cast<int64_t>(value->bits))
                         : static_cast<double>(value->bits);
}

std::optional<bool> ReadBool(ValueType type, const std::byte* p) {
  if (type != ValueType::kBool) return std::nullopt;
  return *p != std::byte{0};
}

std::string DescribeType(const Value& value) {
  return value.is_array() ? absl::StrCat("an array of ", value.size(), " ",
                                         A(NameOf(value.element_type())), " values")
                          : absl::StrCat("of type ", A(NameOf(value.type())));
}

absl::Status WrongType(std::string_view key, const Value& value, std::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("the model file's key '", A(key), "' is ",
                                                 DescribeType(value), ", expected ", A(expected)));
}

// Looks a key up and converts its value by one of Value's As... functions.
template <typename T>
absl::StatusOr<T> Get(const Metadata& metadata, std::string_view key, std::string_view expected,
                      std::optional<T> (Value::*convert)() const) {
  const Value* value = metadata.Find(key);
  if (value == nullptr) {
    return absl::NotFoundError(absl::StrCat("the model file lacks the key '", A(key), "'"));
  }
  std::optional<T> converted = (value->*convert)();
  if (!converted) return WrongType(key, *value, expected);
  return *std::move(converted);
}

}  // namespace

std::string_view NameOf(ValueType type) {
  static constexpr std::array<std::string_view, kValueTypeCount> kNames = {
      "u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
      "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

std::optional<uint64_t> Value::AsUint() const {
  if (is_array_) return std::nullopt;
  return ReadUint(element_, payload_.data());
}

std::optional<int64_t> Value::AsInt() const {
  if (is_array_) return std::nullopt;
  return ReadInt(element_, payload_.data());
}

std::optional<double> Value::AsFloat() const {
  if (is_array_) return std::nullopt;
  return ReadFloat(element_, payload_.data());
}

std::optional<bool> Value::AsBool() const {
  if (is_array_) return std::nullopt;
  return ReadBool(element_, payload_.data());
}

std::optional<std::string_view> Value::AsString() const {
  if (is_array_ || element_ != ValueType::kString) return std::nullopt;
  ByteReader reader(payload_);
  const absl::StatusOr<std::string_view> text = reader.ReadString(kMaxStringBytes, "string");
  if (!text.ok()) return std::nullopt;
  return *text;
}

template <typename T, typename Convert>
std::optional<std::vector<T>> Value::AsVector(Convert convert) const {
  const size_t stride = FixedSize(element_);
  if (!is_array_ || stride == 0) return std::nullopt;
  std::vector<T> out;
  out.reserve(size_);
  for (uint64_t i = 0; i < size_; ++i) {
    const std::optional<T> element = convert(element_, payload_.data() + i * stride);
    if (!element) return std::nullopt;
    out.push_back(*element);
  }
  return out;
}

std::optional<std::vector<uint64_t>> Value::AsUints() const { return AsVector<uint64_t>(ReadUint); }

std::optional<std::vector<int64_t>> Value::AsInts() const { return AsVector<int64_t>(ReadInt); }

std::optional<std::vector<double>> Value::AsFloats() const { return AsVector<double>(ReadFloat); }

std::optional<std::vector<bool>> Value::AsBools() const { return AsVector<bool>(ReadBool); }

std::optional<std::vector<std::string_view>> Value::AsStrings() const {
  if (!is_array_ || element_ != ValueType::kString) return std::nullopt;
  std::vector<std::string_view> out;
  out.reserve(size_);
  // Lengths were checked when the file was opened; the cursor checks again because the file under
  // the mapping may have been changed since.
  ByteReader reader(payload_);
  for (uint64_t i = 0; i < size_; ++i) {
    const absl::StatusOr<std::string_view> text = reader.ReadString(kMaxStringBytes, "string");
    if (!text.ok()) return std::nullopt;
    out.push_back(*text);
  }
  return out;
}

absl::StatusOr<Metadata> Metadata::Make(std::vector<Entry> entries) {
  Metadata metadata;
  metadata.entries_ = std::move(entries);
  const std::vector<Entry>& all = metadata.entries_;
  // A sorted index instead of a hash table: no input can make it slow.
  std::vector<uint32_t>& order = metadata.by_key_;
  order.resize(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return all[a].key < all[b].key; });
  const auto twin = std::adjacent_find(
      order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return all[a].key == all[b].key; });
  if (twin != order.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key '", Printable(all[*twin].key), "' occurs twice"));
  }
  return metadata;
}

const Value* Metadata::Find(std::string_view key) const {
  const auto it =
      std::lower_bound(by_key_.begin(), by_key_.end(), key,
                       [&](uint32_t i, std::string_view k) { return entries_[i].key < k; });
  if (it == by_key_.end() || entries_[*it].key != key) return nullptr;
  return &entries_[*it].value;
}

absl::StatusOr<uint64_t> Metadata::GetUint(std::string_view key) const {
  return Get(*this, key, "a non-negative integer", &Value::AsUint);
}

absl::StatusOr<int64_t> Metadata::GetInt(std::string_view key) const {
  return Get(*this, key, "an integer of 64 bits", &Value::AsInt);
}

absl::StatusOr<double> Metadata::GetFloat(std::string_view key) const {
  return Get(*this, key, "a number", &Value::AsFloat);
}

absl::StatusOr<bool> Metadata::GetBool(std::string_view key) const {
  return Get(*this, key, "a bool", &Value::AsBool);
}

absl::StatusOr<std::string_view> Metadata::GetString(std::string_view key) const {
  return Get(*this, key, "a string", &Value::AsString);
}

absl::StatusOr<std::vector<uint64_t>> Metadata::GetUints(std::string_view key) const {
  return Get(*this, key, "an array of non-negative integers", &Value::AsUints);
}

absl::StatusOr<std::vector<int64_t>> Metadata::GetInts(std::string_view key) const {
  return Get(*this, key, "an array of integers", &Value::AsInts);
}

absl::StatusOr<std::vector<double>> Metadata::GetFloats(std::string_view key) const {
  return Get(*this, key, "an array of numbers", &Value::AsFloats);
}

absl::StatusOr<std::vector<bool>> Metadata::GetBools(std::string_view key) const {
  return Get(*this, key, "an array of bools", &Value::AsBools);
}

absl::StatusOr<std::vector<std::string_view>> Metadata::GetStrings(std::string_view key) const {
  return Get(*this, key, "an array of strings", &Value::AsStrings);
}

absl::StatusOr<uint64_t> Metadata::GetUint(std::string_view key, uint64_t fallback) const {
  if (Find(key) == nullptr) return fallback;
  return GetUint(key);
}

absl::StatusOr<int64_t> Metadata::GetInt(std::string_view key, int64_t fallback) const {
  if (Find(key) == nullptr) return fallback;
  return GetInt(key);
}

absl::StatusOr<double> Metadata::GetFloat(std::string_view key, double fallback) const {
  if (Find(key) == nullptr) return fallback;
  return GetFloat(key);
}

absl::StatusOr<bool> Metadata::GetBool(std::string_view key, bool fallback) const {
  if (Find(key) == nullptr) return fallback;
  return GetBool(key);
}

absl::StatusOr<std::string_view> Metadata::GetString(std::string_view key,
                                                     std::string_view fallback) const {
  if (Find(key) == nullptr) return fallback;
  return GetString(key);
}

absl::StatusOr<std::vector<uint64_t>> Metadata::GetUintPerLayer(std::string_view key,
                                                                size_t count) const {
  const Value* value = Find(key);
  if (value != nullptr && !value->is_array()) {
    STRATA_ASSIGN_OR_RETURN(const uint64_t scalar, GetUint(key));
    return std::vector<uint64_t>(count, scalar);
  }
  STRATA_ASSIGN_OR_RETURN(std::vector<uint64_t> values, GetUints(key));
  if (values.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat("the model file's key '", A(key), "' has ",
                                                   values.size(), " entries, expected ", count));
  }
  return values;
}

}  // namespace strata::gguf
