// The command line that all daemons share.
#include <algorithm>

#include "common/base/status.h"
#include "common/config/config.h"

#include "absl/flags/flag.h"
#include "absl/flags/usage_config.h"

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

absl::StatusOr<v1::Config> FromFlagsWithoutDefaults() {
  STRATA_ASSIGN_OR_RETURN(v1::Config config, ReadFile(absl::GetFlag(FLAGS_config)));
  STRATA_RETURN_IF_ERROR(MergeText(absl::GetFlag(FLAGS_set), "--set", config));
  if (const std::string v = absl::GetFlag(FLAGS_model); !v.empty()) config.set_model(v);
  if (const std::string v = absl::GetFlag(FLAGS_runtime_dir); !v.empty()) {
    config.set_runtime_dir(v);
  }
  if (const std::string v = absl::GetFlag(FLAGS_state_dir); !v.empty()) config.set_state_dir(v);
  return config;
}

absl::StatusOr<v1::Config> FromFlags() {
  STRATA_ASSIGN_OR_RETURN(v1::Config config, FromFlagsWithoutDefaults());
  STRATA_RETURN_IF_ERROR(FillDefaults(config));
  return config;
}

void ShowOwnFlagsInHelp() {
  // Where a path inside our tree begins; npos for other people's files.
  const auto ours = [](absl::string_view file) {
    size_t begin = absl::string_view::npos;
    for (const char* folder : {"common/", "services/", "cli/"}) {
      begin = std::min(begin, file.rfind(folder));
    }
    return begin;
  };
  absl::FlagsUsageConfig usage;
  usage.contains_help_flags = [=](absl::string_view file) {
    return ours(file) != absl::string_view::npos;
  };
  usage.contains_helpshort_flags = usage.contains_help_flags;
  usage.normalize_filename = [=](absl::string_view file) {
    const size_t begin = ours(file);
    return std::string(begin == absl::string_view::npos ? file : file.substr(begin));
  };
  absl::SetFlagsUsageConfig(usage);
}

}  // namespace strata::config
