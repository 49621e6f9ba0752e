// Constants of the GGUF container and the limits we read it with.
//
// Layout, little endian: magic "GGUF", u32 version, u64 tensor count, u64 key count, the key-value
// pairs, the tensor infos, zero padding to the alignment, the tensor data. A string is a u64 length
// and that many bytes. A tensor info is {string name, u32 n_dims, u64 dims[n_dims], u32 type,
// u64 offset from the start of the tensor data}. Versions 2 and 3 share this layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata::gguf {

enum class ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
inline constexpr uint32_t kValueTypeCount = 13;

inline constexpr std::string_view kMagic = "GGUF";
inline constexpr uint32_t kVersion = 3;
inline constexpr uint32_t kDefaultAlignment = 32;
inline constexpr uint64_t kFixedHeaderBytes = 4 + 4 + 8 + 8;

// Limits. Real files stay far below them; a file beyond them is damaged or hostile.
inline constexpr uint64_t kMaxKeys = 64 * 1024;
inline constexpr uint64_t kMaxTensors = 1000 * 1000;
inline constexpr uint64_t kMaxKeyBytes = 65535;  // the format's own limit
inline constexpr uint64_t kMaxTensorNameBytes = 255;
inline constexpr uint64_t kMaxStringBytes = uint64_t{64} << 20;
inline constexpr uint32_t kMaxDims = 4;
inline constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
inline constexpr uint64_t kMaxShards = 9999;

inline constexpr std::string_view kKeyArchitecture = "general.architecture";
inline constexpr std::string_view kKeyAlignment = "general.alignment";
inline constexpr std::string_view kKeySplitNo = "split.no";
inline constexpr std::string_view kKeySplitCount = "split.count";
inline constexpr std::string_view kKeySplitTensors = "split.tensors.count";

// Bytes of one value of a fixed-size type; 0 for strings and arrays.
constexpr size_t FixedSize(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

// "u32", "string", ...
std::string_view NameOf(ValueType type);

}  // namespace strata::gguf
