#include "services/compute/models/weights.h"

#include <limits>

#include "common/base/status.h"
#include "common/quant/decode.h"

namespace strata::compute {

absl::StatusOr<Tensor> WeightLoader::Matrix(std::string_view name, int64_t out, int64_t in) {
  return MatrixRows(name, out, in, 0, out);
}

absl::StatusOr<Tensor> WeightLoader::MatrixRows(std::string_view name, int64_t out, int64_t in,
                                                int64_t first, int64_t rows) {
  const gguf::TensorInfo* info = file_.Find(name);
  if (info == nullptr) {
    return absl::NotFoundError(absl::StrCat("the model file lacks tensor '", A(name), "'"));
  }
  if (info->cols() != static_cast<uint64_t>(in) || info->rows() != static_cast<uint64_t>(out)) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", A(name), "' has ", info->rows(),
                                                   " rows of ", info->cols(), " values; expected ",
                                                   out, " rows of ", in));
  }
  if (!quant::CanDecode(info->type)) {
    return absl::UnimplementedError(absl::StrCat("tensor '", A(name), "' has type ",
                                                 A(NameOf(info->type)),
                                                 ", which no kernel can use as a weight"));
  }
  const std::span<const std::byte> all = file_.Data(*info);
  const size_t row_bytes = all.size() / static_cast<size_t>(out);
  return backend_.LoadWeight(
      all.subspan(static_cast<size_t>(first) * row_bytes, static_cast<size_t>(rows) * row_bytes),
      info->type, rows, in);
}

absl::StatusOr<Tensor> WeightLoader::Vector(std::string_view name, int64_t n) {
  STRATA_ASSIGN_OR_RETURN(const Tensor tensor, Matrix(name, 1, n));
  if (tensor.type != TensorType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", A(name), "' has type ", A(NameOf(tensor.type)), "; expected f32"));
  }
  return tensor;
}

absl::StatusOr<Tensor> WeightLoader::OptionalMatrix(std::string_view name, int64_t out,
                                                    int64_t in) {
  if (!Has(name)) return Tensor{};
  return Matrix(name, out, in);
}

absl::StatusOr<Tensor> WeightLoader::OptionalVector(std::string_view name, int64_t n) {
  if (!Has(name)) return Tensor{};
  return Vector(name, n);
}

std::string WeightLoader::InLayer(int layer, std::string_view suffix) {
  return absl::StrCat("blk.", layer, ".", A(suffix));
}

absl::StatusOr<HyperParameters> HyperParameters::From(const gguf::Model& file) {
  STRATA_ASSIGN_OR_RETURN(const std::string_view architecture,
                          file.metadata().GetString("general.architecture"));
  return HyperParameters(file.metadata(), std::string(architecture));
}

std::string HyperParameters::Key(std::string_view key) const {
  return absl::StrCat(architecture_, ".", A(key));
}

absl::StatusOr<int> HyperParameters::Get(std::string_view key) const {
  STRATA_ASSIGN_OR_RETURN(const uint64_t value, metadata_->GetUint(Key(key)));
  if (value == 0 || value > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata ", Key(key), " = ", value, " is not a positive 31-bit number"));
  }
  return static_cast<int>(value);
}

absl::StatusOr<int> HyperParameters::Get(std::string_view key, int fallback) const {
  if (metadata_->Find(Key(key)) == nullptr) return fallback;
  STRATA_ASSIGN_OR_RETURN(const uint64_t value, metadata_->GetUint(Key(key)));
  if (value > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata ", Key(key), " = ", value, " is not a 31-bit number"));
  }
  return static_cast<int>(value);
}

absl::StatusOr<float> HyperParameters::GetFloat(std::string_view key) const {
  STRATA_ASSIGN_OR_RETURN(const double value, metadata_->GetFloat(Key(key)));
  return static_cast<float>(value);
}

absl::StatusOr<float> HyperParameters::GetFloat(std::string_view key, float fallback) const {
  STRATA_ASSIGN_OR_RETURN(const double value,
                          metadata_->GetFloat(Key(key), static_cast<double>(fallback)));
  return static_cast<float>(value);
}

absl::StatusOr<std::string> HyperParameters::GetString(std::string_view key,
                                                       std::string_view fallback) const {
  STRATA_ASSIGN_OR_RETURN(const std::string_view value, metadata_->GetString(Key(key), fallback));
  return std::string(value);
}

}  // namespace strata::compute
