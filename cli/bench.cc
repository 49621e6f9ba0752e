// `strata bench kernels` and `strata bench model`.
#include "cli/bench.h"

#include "cli/command.h"

namespace strata::cli {

absl::Status Bench(std::span<const std::string> arguments) {
  if (!arguments.empty() && arguments[0] == "kernels") return BenchKernels(arguments.subspan(1));
  if (arguments.size() == 1 && arguments[0] == "model") return BenchModel();
  return absl::InvalidArgumentError(
      "usage: strata bench model [--model=FILE], or strata bench kernels [TYPE...]");
}

}  // namespace strata::cli
