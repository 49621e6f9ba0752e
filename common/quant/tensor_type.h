// The number formats of GGUF tensors: ids, block sizes, names.
//
// A row of n values is stored as n / block_values blocks of block_bytes bytes; rows never share a
// block. Ids are those of the file format (ggml_type); the gaps are formats that were withdrawn.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace strata {

enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

struct TensorTypeInfo {
  TensorType type;
  std::string_view name;  // as llama.cpp prints it: "q4_K", "iq2_xxs"
  uint32_t block_values;
  uint32_t block_bytes;

  double bits_per_value() const { return 8.0 * block_bytes / block_values; }
};

// All known types in the order of their ids.
std::span<const TensorTypeInfo> AllTensorTypes();

// nullptr for an id that is not known.
const TensorTypeInfo* FindTensorType(uint32_t id);
// By name, case-insensitive; nullptr if not known.
const TensorTypeInfo* FindTensorType(std::string_view name);

const TensorTypeInfo& InfoOf(TensorType type);
inline std::string_view NameOf(TensorType type) { return InfoOf(type).name; }

// Bytes of a row of `values` values; empty if `values` is not a multiple of the block or overflows.
std::optional<uint64_t> RowBytes(TensorType type, uint64_t values);

}  // namespace strata
