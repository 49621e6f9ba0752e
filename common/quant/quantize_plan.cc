#include "common/quant/quantize_plan.h"

#include <algorithm>
#include <string_view>

#include "common/quant/encode.h"

#include "absl/strings/str_cat.h"

namespace strata::quant {
namespace {

// '*' matches any characters. Backtracks to the last star only, so it is linear in practice.
bool MatchesGlob(std::string_view pattern, std::string_view name) {
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;
  size_t resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool Matches(const TensorOverride& override, std::string_view name) {
  constexpr std::string_view kSuffix = ".weight";
  if (MatchesGlob(override.pattern, name)) return true;
  return name.ends_with(kSuffix) &&
         MatchesGlob(override.pattern, name.substr(0, name.size() - kSuffix.size()));
}

bool IsInteger(TensorType type) {
  return type == TensorType::kI8 || type == TensorType::kI16 || type == TensorType::kI32 ||
         type == TensorType::kI64;
}

// Why a tensor is no matrix to quantise; empty if it is one.
std::string_view WhyKept(const gguf::TensorInfo& tensor) {
  if (IsInteger(tensor.type)) return "integers";
  if (tensor.rows() == 1) return "vector";
  if (tensor.n_dims > 3) return "four dimensions";
  if (!tensor.name.ends_with(".weight")) return "not a weight matrix";
  const auto contains = [&](std::string_view part) {
    return tensor.name.find(part) != std::string_view::npos;
  };
  if (contains("_norm.")) return "norm";
  if (contains("ffn_gate_inp")) return "router";
  if (contains("ssm_conv1d") || contains("shortconv.conv")) return "convolution";
  return "";
}

absl::Status CheckWritable(TensorType type) {
  if (CanEncode(type)) return absl::OkStatus();
  return EncodeRow(type, nullptr, 0, nullptr);  // says so, with the types that are possible
}

PlannedTensor PlanMatrix(const gguf::TensorInfo& tensor, TensorType wanted) {
  const TensorTypeInfo& from = InfoOf(tensor.type);
  const TensorTypeInfo& to = InfoOf(wanted);
  if (tensor.type == wanted) return {wanted, ""};
  if (from.block_values > 1 && from.bits_per_value() <= to.bits_per_value()) {
    return {tensor.type, absl::StrCat("already quantised to ", A(from.name))};
  }
  if (tensor.cols() % to.block_values == 0) return {wanted, ""};
  const bool fits_q8 = tensor.cols() % InfoOf(TensorType::kQ8_0).block_values == 0;
  const TensorType fallback = fits_q8 ? TensorType::kQ8_0 : TensorType::kF16;
  return {fallback,
          absl::StrCat("rows of ", tensor.cols(), " are no multiple of ", to.block_values)};
}

}  // namespace

absl::StatusOr<TensorOverride> ParseTensorOverride(std::string_view text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", A(text), "' is not TENSOR=TYPE, such as token_embd=q8_0"));
  }
  const std::string_view name = text.substr(equals + 1);
  const TensorTypeInfo* type = FindTensorType(name);
  if (type == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", A(text), "': unknown tensor type '", A(name), "'"));
  }
  STRATA_RETURN_IF_ERROR(Annotate(CheckWritable(type->type), text));
  return TensorOverride{std::string(text.substr(0, equals)), type->type};
}

absl::StatusOr<std::vector<PlannedTensor>> PlanQuantization(
    std::span<const gguf::TensorInfo> tensors, const QuantizeOptions& options) {
  STRATA_RETURN_IF_ERROR(CheckWritable(options.type));
  for (const TensorOverride& override : options.overrides) {
    STRATA_RETURN_IF_ERROR(Annotate(CheckWritable(override.type), override.pattern));
  }
  std::vector<PlannedTensor> plan;
  plan.reserve(tensors.size());
  std::vector<bool> used(options.overrides.size(), false);
  for (const gguf::TensorInfo& tensor : tensors) {
    if (const std::string_view why = WhyKept(tensor); !why.empty()) {
      const bool copied = IsInteger(tensor.type) || tensor.n_dims > 3;
      plan.push_back({copied ? tensor.type : TensorType::kF32, std::string(why)});
      continue;
    }
    TensorType wanted = options.type;
    for (size_t i = 0; i < options.overrides.size(); ++i) {
      if (!Matches(options.overrides[i], tensor.name)) continue;
      wanted = options.overrides[i].type;
      used[i] = true;
    }
    plan.push_back(PlanMatrix(tensor, wanted));
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat("no weight matrix of the model matches '",
                                                   options.overrides[i].pattern,
                                                   "' (norms, vectors and the router stay f32)"));
  }
  return plan;
}

uint32_t FileTypeOf(TensorType type) {
  switch (type) {
    case TensorType::kF16:
      return 1;
    case TensorType::kQ4_0:
      return 2;
    case TensorType::kQ8_0:
      return 7;
    case TensorType::kQ2_K:
      return 10;
    case TensorType::kQ3_K:  // as are the next two, "small": no matrix gets a larger type
      return 11;
    case TensorType::kQ4_K:
      return 14;
    case TensorType::kQ5_K:
      return 16;
    case TensorType::kQ6_K:
      return 18;
    case TensorType::kIQ4_NL:
      return 25;
    case TensorType::kIQ4_XS:
      return 30;
    case TensorType::kBF16:
      return 32;
    case TensorType::kMXFP4:
      return 38;
    default:
      return 0;  // F32
  }
}

}  // namespace strata::quant
