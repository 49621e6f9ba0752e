#include "common/rpc/daemon.h"

#include <malloc.h>
#include <systemd/sd-daemon.h>

#include <csignal>

#include "common/base/bus_error.h"
#include "common/base/log.h"
#include "common/config/config.h"

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"

namespace strata::rpc {
namespace {

sigset_t TerminationSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// glibc maps and unmaps every large message of gRPC by default, which costs a page fault per 4 KiB:
// measured as a factor of four on transfers of megabytes.
void KeepLargeBlocks() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  mallopt(M_TOP_PAD, 16 << 20);
}

}  // namespace

int DaemonMain(int argc, char** argv, std::string_view usage,
               absl::FunctionRef<absl::Status(const v1::Config&)> body) {
  absl::SetProgramUsageMessage(A(usage));
  config::ShowOwnFlagsInHelp();
  if (const auto rest = absl::ParseCommandLine(argc, argv); rest.size() > 1) {
    LogError("unexpected argument '", rest[1], "'; see --help");
    return 2;
  }
  KeepLargeBlocks();
  const sigset_t signals = TerminationSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // inherited by every thread started later
  signal(SIGPIPE, SIG_IGN);
  ExplainBusErrors();

  const absl::StatusOr<v1::Config> config = config::FromFlags();
  if (!config.ok()) {
    LogError(config.status().message());
    return 2;
  }
  const absl::Status status = body(*config);
  if (!status.ok()) {
    LogError(status.message());
    return 1;
  }
  return 0;
}

void ServeUntilSignal(std::string_view status_line) {
  LogInfo(A(status_line));
  sd_notifyf(0, "READY=1\nSTATUS=%.*s", static_cast<int>(status_line.size()), status_line.data());
  const sigset_t signals = TerminationSignals();
  int received = 0;
  sigwait(&signals, &received);
  LogInfo("stopping: ", received == SIGTERM ? "SIGTERM" : "SIGINT");
  sd_notify(0, "STOPPING=1");
}

void NotifyProgress(std::string_view status_line) {
  sd_notifyf(0, "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=%.*s", static_cast<int>(status_line.size()),
             status_line.data());
}

}  // namespace strata::rpc
