// The key-value pairs of a GGUF file.
//
// Values are views: numbers, strings and arrays stay where they lie in the mapped file and are
// decoded when asked for, so opening a model copies nothing. Views live as long as the gguf::Model.
// Immutable, hence safe to read from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/gguf/format.h"

namespace strata::gguf {

// One scalar or one array of scalars. The As... functions give an empty optional when the value is
// of another kind or does not fit.
class Value {
 public:
  // `payload` holds `size` encoded values of `element` and nothing else; checked by the parser.
  Value(ValueType element, bool is_array, uint64_t size, std::span<const std::byte> payload)
      : element_(element), is_array_(is_array), size_(size), payload_(payload) {}

  ValueType type() const { return is_array_ ? ValueType::kArray : element_; }
  ValueType element_type() const { return element_; }
  bool is_array() const { return is_array_; }
  uint64_t size() const { return size_; }  // elements; 1 for a scalar
  // As in the file, without the type and count in front.
  std::span<const std::byte> payload() const { return payload_; }

  std::optional<uint64_t> AsUint() const;  // any integer type, if not negative
  std::optional<int64_t> AsInt() const;    // any integer type, if it fits
  std::optional<double> AsFloat() const;   // any number
  std::optional<bool> AsBool() const;
  std::optional<std::string_view> AsString() const;

  // The same for arrays; every element must qualify.
  std::optional<std::vector<uint64_t>> AsUints() const;
  std::optional<std::vector<int64_t>> AsInts() const;
  std::optional<std::vector<double>> AsFloats() const;
  std::optional<std::vector<bool>> AsBools() const;
  std::optional<std::vector<std::string_view>> AsStrings() const;

 private:
  template <typename T, typename Convert>
  std::optional<std::vector<T>> AsVector(Convert convert) const;

  ValueType element_;
  bool is_array_;
  uint64_t size_;
  std::span<const std::byte> payload_;
};

class Metadata {
 public:
  struct Entry {
    std::string_view key;
    Value value;
  };

  Metadata() = default;
  // InvalidArgument if a key occurs twice.
  static absl::StatusOr<Metadata> Make(std::vector<Entry> entries);

  // In file order.
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  size_t size() const { return entries_.size(); }

  // nullptr if there is no such key.
  const Value* Find(std::string_view key) const;

  // NotFound names the missing key; InvalidArgument a value of another type.
  absl::StatusOr<uint64_t> GetUint(std::string_view key) const;
  absl::StatusOr<int64_t> GetInt(std::string_view key) const;
  absl::StatusOr<double> GetFloat(std::string_view key) const;
  absl::StatusOr<bool> GetBool(std::string_view key) const;
  absl::StatusOr<std::string_view> GetString(std::string_view key) const;
  absl::StatusOr<std::vector<uint64_t>> GetUints(std::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> GetInts(std::string_view key) const;
  absl::StatusOr<std::vector<double>> GetFloats(std::string_view key) const;
  absl::StatusOr<std::vector<bool>> GetBools(std::string_view key) const;
  absl::StatusOr<std::vector<std::string_view>> GetStrings(std::string_view key) const;

  // `fallback` only if the key is absent; a value of another type is still an error.
  absl::StatusOr<uint64_t> GetUint(std::string_view key, uint64_t fallback) const;
  absl::StatusOr<int64_t> GetInt(std::string_view key, int64_t fallback) const;
  absl::StatusOr<double> GetFloat(std::string_view key, double fallback) const;
  absl::StatusOr<bool> GetBool(std::string_view key, bool fallback) const;
  absl::StatusOr<std::string_view> GetString(std::string_view key, std::string_view fallback) const;

  // Per-layer numbers: an array of exactly `count`, or a scalar that holds for all of them.
  absl::StatusOr<std::vector<uint64_t>> GetUintPerLayer(std::string_view key, size_t count) const;

 private:
  std::vector<Entry> entries_;
  std::vector<uint32_t> by_key_;  // indices into entries_, sorted by key
};

}  // namespace strata::gguf
