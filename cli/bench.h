// The two halves of `strata bench`.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"

namespace strata::cli {

// Matrix products of the weight types named (default: all) on this machine's CPU. Becomes the
// program strata-kernel-bench: the kernels belong to compute, which no command links. Does not
// return unless that fails.
absl::Status BenchKernels(std::span<const std::string> types);

// Prompt and generation speed of a model through the daemons, beside what memory allows.
absl::Status BenchModel();

}  // namespace strata::cli
