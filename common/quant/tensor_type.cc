#include "common/quant/tensor_type.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "common/base/checked.h"

namespace strata {
namespace {

using enum TensorType;

constexpr auto kTypes = std::to_array<TensorTypeInfo>({
    {kF32, "f32", 1, 4},
    {kF16, "f16", 1, 2},
    {kQ4_0, "q4_0", 32, 18},
    {kQ4_1, "q4_1", 32, 20},
    {kQ5_0, "q5_0", 32, 22},
    {kQ5_1, "q5_1", 32, 24},
    {kQ8_0, "q8_0", 32, 34},
    {kQ8_1, "q8_1", 32, 36},
    {kQ2_K, "q2_K", 256, 84},
    {kQ3_K, "q3_K", 256, 110},
    {kQ4_K, "q4_K", 256, 144},
    {kQ5_K, "q5_K", 256, 176},
    {kQ6_K, "q6_K", 256, 210},
    {kQ8_K, "q8_K", 256, 292},
    {kIQ2_XXS, "iq2_xxs", 256, 66},
    {kIQ2_XS, "iq2_xs", 256, 74},
    {kIQ3_XXS, "iq3_xxs", 256, 98},
    {kIQ1_S, "iq1_s", 256, 50},
    {kIQ4_NL, "iq4_nl", 32, 18},
    {kIQ3_S, "iq3_s", 256, 110},
    {kIQ2_S, "iq2_s", 256, 82},
    {kIQ4_XS, "iq4_xs", 256, 136},
    {kI8, "i8", 1, 1},
    {kI16, "i16", 1, 2},
    {kI32, "i32", 1, 4},
    {kI64, "i64", 1, 8},
    {kF64, "f64", 1, 8},
    {kIQ1_M, "iq1_m", 256, 56},
    {kBF16, "bf16", 1, 2},
    {kTQ1_0, "tq1_0", 256, 54},
    {kTQ2_0, "tq2_0", 256, 66},
    {kMXFP4, "mxfp4", 32, 17},
    {kNVFP4, "nvfp4", 64, 36},
    {kQ1_0, "q1_0", 128, 18},
    {kQ2_0, "q2_0", 64, 18},
});

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

}  // namespace

std::span<const TensorTypeInfo> AllTensorTypes() { return kTypes; }

const TensorTypeInfo* FindTensorType(uint32_t id) {
  for (const TensorTypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == id) return &info;
  }
  return nullptr;
}

const TensorTypeInfo* FindTensorType(std::string_view name) {
  for (const TensorTypeInfo& info : kTypes) {
    if (EqualIgnoringCase(info.name, name)) return &info;
  }
  return nullptr;
}

const TensorTypeInfo& InfoOf(TensorType type) {
  return *FindTensorType(static_cast<uint32_t>(type));  // an enumerator is always in the table
}

std::optional<uint64_t> RowBytes(TensorType type, uint64_t values) {
  const TensorTypeInfo& info = InfoOf(type);
  if (values % info.block_values != 0) return std::nullopt;
  return CheckedMul(values / info.block_values, info.block_bytes);
}

}  // namespace strata
