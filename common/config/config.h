// The configuration of all daemons: one protobuf text file, defaults filled in, flags on top.
//
// Order of precedence: built-in defaults < file < `--set` < `--model`, `--runtime_dir`,
// `--state_dir`.
#pragma once

#include <string>
#include <string_view>

#include "strata/v1/config.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::config {

// Merges protobuf text into `config`. Errors carry `source` with line and column, e.g.
// "strata.textproto:3:9: unknown field \"thread\" in strata.v1.ComputeConfig". Scalars replace, so
// later text wins; repeated fields append.
absl::Status MergeText(std::string_view text, std::string_view source, v1::Config& config);

// Reads a file. An empty path gives an empty configuration (all defaults).
absl::StatusOr<v1::Config> ReadFile(const std::string& path);

// Fills every absent field whose default does not depend on the machine, and the addresses of the
// daemons from runtime_dir. Rejects contradictory values, naming field and value.
absl::Status FillDefaults(v1::Config& config);

// The configuration that the command line asks for: --config, --set, --model, --runtime_dir,
// --state_dir (flags are defined in this library's flags.cc).
absl::StatusOr<v1::Config> FromFlags();
// The same before FillDefaults, for a command that has defaults of its own to put in between.
absl::StatusOr<v1::Config> FromFlagsWithoutDefaults();

// Makes --help list the flags of all our files, named by their place in the source tree.
void ShowOwnFlagsInHelp();

}  // namespace strata::config
