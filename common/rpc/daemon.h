// The life of a daemon, from main() to exit code. Free of gRPC.
#pragma once

#include <functional>
#include <string_view>

#include "strata/v1/config.pb.h"

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace strata::rpc {

// Parses the command line, loads the configuration, blocks SIGTERM and SIGINT in all threads and
// calls `body`, which starts the service, calls ServeUntilSignal() and returns. An error is logged
// and becomes exit code 1. `usage` is what --help prints above the flags.
int DaemonMain(int argc, char** argv, std::string_view usage,
               absl::FunctionRef<absl::Status(const v1::Config&)> body);

// Tells systemd (if it listens) that the daemon is ready, waits for SIGTERM or SIGINT, and tells it
// that the daemon stops.
void ServeUntilSignal(std::string_view status_line);

// A line for `systemctl status` while a long start goes on; extends the start timeout by a minute.
void NotifyProgress(std::string_view status_line);

}  // namespace strata::rpc
