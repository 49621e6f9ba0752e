// The command line that all daemons share.
#include "common/base/status.h"
#include "common/config/config.h"

#include "absl/flags/flag.h"

ABSL_FLAG(std::string, config, "",
          "Configuration file in protobuf text format (message strata.v1.Config). Empty: defaults "
          "for one machine.");
ABSL_FLAG(std::string, set, "",
          "Configuration text merged over the file, e.g. --set='compute { threads: 4 }'.");
ABSL_FLAG(std::string, model, "", "GGUF model file; overrides `model` of the configuration.");
ABSL_FLAG(std::string, runtime_dir, "",
          "Directory of the daemons' sockets; overrides `runtime_dir` of the configuration.");
ABSL_FLAG(std::string, state_dir, "",
          "Directory of what must survive a restart; overrides `state_dir` of the configuration.");

namespace strata::config {

absl::StatusOr<v1::Config> FromFlags() {
  STRATA_ASSIGN_OR_RETURN(v1::Config config, ReadFile(absl::GetFlag(FLAGS_config)));
  STRATA_RETURN_IF_ERROR(MergeText(absl::GetFlag(FLAGS_set), "--set", config));
  if (const std::string v = absl::GetFlag(FLAGS_model); !v.empty()) config.set_model(v);
  if (const std::string v = absl::GetFlag(FLAGS_runtime_dir); !v.empty()) {
    config.set_runtime_dir(v);
  }
  if (const std::string v = absl::GetFlag(FLAGS_state_dir); !v.empty()) config.set_state_dir(v);
  STRATA_RETURN_IF_ERROR(FillDefaults(config));
  return config;
}

}  // namespace strata::config
