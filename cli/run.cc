// `strata run`: all four daemons on this machine, until Ctrl-C.
#include <iostream>

#include "cli/command.h"
#include "cli/daemon_set.h"
#include "cli/http_client.h"
#include "cli/supervisor.h"
#include "common/base/status.h"
#include "common/config/config.h"

namespace strata::cli {

absl::Status Run(std::span<const std::string> arguments) {
  STRATA_RETURN_IF_ERROR(ExpectAtMost(arguments, 0));
  STRATA_ASSIGN_OR_RETURN(v1::Config config, config::FromFlagsWithoutDefaults());
  STRATA_ASSIGN_OR_RETURN(const RuntimeFolder folder, RuntimeFolder::Create());
  if (config.runtime_dir().empty()) config.set_runtime_dir(folder.path());
  STRATA_RETURN_IF_ERROR(CompleteForUser(config));
  STRATA_RETURN_IF_ERROR(config::FillDefaults(config));
  STRATA_ASSIGN_OR_RETURN(std::vector<DaemonSpec> daemons,
                          DaemonCommands(config, {"expertstore", "kvstore", "compute", "gateway"}));

  const std::string address = config.gateway().listen(0);
  std::cerr << "strata: model " << config.model() << "\n";
  Supervisor supervisor(std::move(daemons));
  Supervisor::Options options;
  options.ready = [&] { return IsHealthy(address); };
  options.on_ready = [&] {
    std::cerr << "strata: ready at http://" << address << "/v1 (Ctrl-C stops)\n";
  };
  return supervisor.Run(options);
}

}  // namespace strata::cli
