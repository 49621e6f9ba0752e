// `strata bench kernels`.
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "cli/bench.h"
#include "cli/daemon_set.h"
#include "common/base/status.h"
#include "common/config/config.h"

namespace strata::cli {

absl::Status BenchKernels(std::span<const std::string> types) {
  STRATA_ASSIGN_OR_RETURN(const v1::Config config, config::FromFlagsWithoutDefaults());
  STRATA_ASSIGN_OR_RETURN(const std::string program, ProgramBeside("strata-kernel-bench"));
  const v1::ComputeConfig& compute = config.compute();
  std::vector<std::string> command = {program, absl::StrCat("--threads=", compute.threads())};
  if (!compute.isa().empty()) command.push_back("--isa=" + compute.isa());
  command.insert(command.end(), types.begin(), types.end());
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  return ErrnoStatus(errno, absl::StrCat("cannot run '", program, "'"));
}

}  // namespace strata::cli
