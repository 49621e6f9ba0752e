// Starts daemons as child processes and keeps them alive.
//
// Children die with this process (PR_SET_PDEATHSIG). Their output is copied line by line with the
// daemon's name in front. A child that dies is started again, after a pause that doubles from 100
// ms to 5 s while it keeps dying young; a child that ends with exit code 2 (wrong configuration),
// or dies young five times in a row, ends the whole set with its message. Single-threaded; no gRPC
// in here, because a process with gRPC threads must not fork.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"

#include "absl/status/status.h"

namespace strata::cli {

struct DaemonSpec {
  std::string name;  // log prefix
  std::vector<std::string> command;
  int stop_group = 0;  // lower groups are stopped first and completely
};

class Supervisor {
 public:
  // `ready` is polled every 100 ms until it returns true once; then `on_ready` is called.
  struct Options {
    std::function<bool()> ready;
    std::function<void()> on_ready;
    // Ends the set as if SIGTERM had come; polled. Null: only signals end it.
    std::function<bool()> finished;
  };

  explicit Supervisor(std::vector<DaemonSpec> daemons);
  ~Supervisor();

  // Starts everything, returns after SIGINT, SIGTERM, `finished`, or a failure that restarting
  // cannot heal. All children have ended when it returns.
  absl::Status Run(const Options& options);

 private:
  using Clock = std::chrono::steady_clock;
  struct Child {
    DaemonSpec spec;
    pid_t pid = -1;
    UniqueFd output;
    std::string partial_line;
    Clock::time_point started;
    Clock::time_point restart_at;
    int young_deaths = 0;
  };

  absl::Status Start(Child& child);
  // Error: the set must end.
  absl::Status Reap();
  void CopyOutput(Child& child);
  void PrintLine(const Child& child, std::string_view line) const;
  void StopAll();
  void PollOnce(std::chrono::milliseconds timeout);

  std::vector<Child> children_;
  UniqueFd signals_;
  bool signalled_ = false;
  size_t name_width_ = 0;
  bool colour_ = false;
};

}  // namespace strata::cli
