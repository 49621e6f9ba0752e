#include "services/compute/models/registry.h"

#include <array>
#include <string_view>

#include "common/base/status.h"

namespace strata::compute {
namespace {

struct Architecture {
  std::string_view name;
  absl::StatusOr<std::unique_ptr<Model>> (*load)(WeightLoader&);
};

constexpr std::array kArchitectures = {
    Architecture{"llama", LoadLlama},
    Architecture{"qwen2", LoadQwen2},
    Architecture{"qwen3", LoadQwen3},
    Architecture{"qwen3moe", LoadQwen3Moe},
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> LoadModel(const gguf::Model& file, Backend& backend) {
  STRATA_ASSIGN_OR_RETURN(const std::string_view name,
                          file.metadata().GetString("general.architecture"));
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) {
      WeightLoader loader(file, backend);
      return architecture.load(loader);
    }
    absl::StrAppend(&known, known.empty() ? "" : ", ", A(architecture.name));
  }
  return absl::UnimplementedError(absl::StrCat("the model's architecture \"", A(name),
                                               "\" is not supported; supported are ", known));
}

}  // namespace strata::compute
