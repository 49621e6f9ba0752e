// The sub-commands of `strata`.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace strata::cli {

struct Command {
  std::string_view name;
  std::string_view arguments;  // after the name, for the usage text
  std::string_view summary;
  absl::Status (*run)(std::span<const std::string> arguments);
};

absl::Status Run(std::span<const std::string> arguments);
absl::Status Chat(std::span<const std::string> arguments);
absl::Status Inspect(std::span<const std::string> arguments);
absl::Status Memory(std::span<const std::string> arguments);
absl::Status Pack(std::span<const std::string> arguments);
absl::Status Quantize(std::span<const std::string> arguments);
absl::Status Bench(std::span<const std::string> arguments);
absl::Status Eval(std::span<const std::string> arguments);
absl::Status Trace(std::span<const std::string> arguments);
absl::Status Cache(std::span<const std::string> arguments);
absl::Status Simulate(std::span<const std::string> arguments);

// InvalidArgument "unexpected argument ..." if more than `most` arguments are left.
absl::Status ExpectAtMost(std::span<const std::string> arguments, size_t most);

}  // namespace strata::cli
