// Fetches a model's tensors by name and checks their shapes, so that a forward function can trust
// them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/gguf/reader.h"
#include "services/compute/ops/backend.h"

#include "absl/status/statusor.h"

namespace strata::compute {

class WeightLoader {
 public:
  // Both must outlive the loaded model: the CPU back end uses the mapped file in place.
  WeightLoader(const gguf::Model& file, Backend& backend) : file_(file), backend_(backend) {}

  // Matrix [out, in] in any type that can be decoded. Errors name the tensor and both shapes.
  absl::StatusOr<Tensor> Matrix(std::string_view name, int64_t out, int64_t in);
  // Rows [first, first + rows) of it, as a matrix of its own.
  absl::StatusOr<Tensor> MatrixRows(std::string_view name, int64_t out, int64_t in, int64_t first,
                                    int64_t rows);
  // Vector of n values, F32 in the file, as a tensor [1, n].
  absl::StatusOr<Tensor> Vector(std::string_view name, int64_t n);
  // The same, but an absent tensor gives an empty one.
  absl::StatusOr<Tensor> OptionalMatrix(std::string_view name, int64_t out, int64_t in);
  absl::StatusOr<Tensor> OptionalVector(std::string_view name, int64_t n);

  bool Has(std::string_view name) const { return file_.Find(name) != nullptr; }
  const gguf::Model& file() const { return file_; }
  Backend& backend() { return backend_; }

  // "blk.<layer>.<suffix>"
  static std::string InLayer(int layer, std::string_view suffix);

 private:
  const gguf::Model& file_;
  Backend& backend_;
};

// Keys of one architecture: Get("block_count") reads "<architecture>.block_count" as a positive
// integer below 2^31; the error names the full key.
class HyperParameters {
 public:
  static absl::StatusOr<HyperParameters> From(const gguf::Model& file);

  const std::string& architecture() const { return architecture_; }
  absl::StatusOr<int> Get(std::string_view key) const;
  absl::StatusOr<int> Get(std::string_view key, int fallback) const;
  absl::StatusOr<float> GetFloat(std::string_view key) const;
  absl::StatusOr<float> GetFloat(std::string_view key, float fallback) const;
  absl::StatusOr<std::string> GetString(std::string_view key, std::string_view fallback) const;

 private:
  HyperParameters(const gguf::Metadata& metadata, std::string architecture)
      : metadata_(&metadata), architecture_(std::move(architecture)) {}
  std::string Key(std::string_view key) const;

  const gguf::Metadata* metadata_;
  std::string architecture_;
};

}  // namespace strata::compute
