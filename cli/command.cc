#include "cli/command.h"

#include "common/base/status.h"

namespace strata::cli {

absl::Status ExpectAtMost(std::span<const std::string> arguments, size_t most) {
  if (arguments.size() <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("unexpected argument '", arguments[most], "'; see strata --help"));
}

}  // namespace strata::cli
