// The model file's vocabulary and chat template. Tensors are not touched.
#pragma once

#include <memory>
#include <string>

#include "services/gateway/model/model.h"

#include "absl/status/statusor.h"

namespace strata::gateway {

struct GgufModel {
  std::unique_ptr<Model> model;
  std::string fingerprint;  // 16 bytes
  std::string other_name;   // general.name, if it differs from the id
};

// `template_file` replaces the file's own chat template; empty = the model's. A model without a
// template, or with one that does not parse, can still complete plain text: chat requests are then
// refused with the reason.
absl::StatusOr<GgufModel> OpenGgufModel(const std::string& path, const std::string& template_file);

}  // namespace strata::gateway
