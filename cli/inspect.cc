// `strata inspect FILE`: what a model file holds and whether it fits this machine.
#include <algorithm>
#include <iostream>
#include <thread>

#include "cli/command.h"
#include "cli/daemon_set.h"
#include "common/base/memory_info.h"
#include "common/base/read_bandwidth.h"
#include "common/base/status.h"
#include "common/gguf/describe.h"

#include "absl/flags/flag.h"

ABSL_FLAG(bool, tensors, false, "inspect: a line for each tensor instead of one for each type.");

namespace strata::cli {

absl::Status Inspect(std::span<const std::string> arguments) {
  STRATA_RETURN_IF_ERROR(ExpectAtMost(arguments, 1));
  STRATA_ASSIGN_OR_RETURN(const std::string path, FindModel(arguments.empty() ? "" : arguments[0]));
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<gguf::Model> model, gguf::Model::Open(path));
  const absl::StatusOr<double> rate =
      MeasureReadBandwidth(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  std::cout << gguf::Describe(*model,
                              {.memory = {TotalMemory(), AvailableMemory(), rate.ok() ? *rate : 0},
                               .every_tensor = absl::GetFlag(FLAGS_tensors)});
  return absl::OkStatus();
}

}  // namespace strata::cli
