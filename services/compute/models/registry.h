// From a file's general.architecture to its model.
#pragma once

#include <memory>

#include "services/compute/models/model.h"
#include "services/compute/models/weights.h"

#include "absl/status/statusor.h"

namespace strata::compute {

// Unimplemented, listing the known ones, for an architecture that has no model here.
absl::StatusOr<std::unique_ptr<Model>> LoadModel(const gguf::Model& file, Backend& backend);

// One for each architecture file.
absl::StatusOr<std::unique_ptr<Model>> LoadLlama(WeightLoader& loader);
absl::StatusOr<std::unique_ptr<Model>> LoadQwen2(WeightLoader& loader);
absl::StatusOr<std::unique_ptr<Model>> LoadQwen3(WeightLoader& loader);
absl::StatusOr<std::unique_ptr<Model>> LoadQwen3Moe(WeightLoader& loader);

}  // namespace strata::compute
