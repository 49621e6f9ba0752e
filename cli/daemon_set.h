// The four daemons of one machine as child processes: where their binaries and folders are.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cli/supervisor.h"
#include "strata/v1/config.pb.h"

#include "absl/status/statusor.h"

namespace strata::cli {

// A private folder for sockets, removed with everything in it at the end.
class RuntimeFolder {
 public:
  // Under $XDG_RUNTIME_DIR or /tmp: socket paths may have 107 bytes at most.
  static absl::StatusOr<RuntimeFolder> Create();
  RuntimeFolder(RuntimeFolder&& other) noexcept;
  RuntimeFolder& operator=(RuntimeFolder&&) = delete;
  ~RuntimeFolder();
  const std::string& path() const { return path_; }

 private:
  explicit RuntimeFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Fills in the model (see FindModel) and a state folder of this user ($XDG_STATE_HOME or
// ~/.local/state), so that `strata run` needs no configuration and no root.
absl::Status CompleteForUser(v1::Config& config);

// `config.model()`, else $STRATA_MODEL, else the demo model beside the binaries or in the source
// tree. NotFound lists every path that was tried.
absl::StatusOr<std::string> FindModel(const std::string& configured);

// The path of one of our programs: they lie beside this executable. NotFound says what to do.
absl::StatusOr<std::string> ProgramBeside(const std::string& name);

// Writes the configuration into the runtime folder and returns how to start each daemon with it.
// `names` of: expertstore, kvstore, compute, gateway. Binaries lie beside this executable.
absl::StatusOr<std::vector<DaemonSpec>> DaemonCommands(const v1::Config& config,
                                                       const std::vector<std::string>& names);

// Daemons under a supervisor in a process of its own, for callers that will have gRPC threads (such
// a process must not fork). Start it before any gRPC object exists. Stops them when destroyed.
class PrivateDaemons {
 public:
  static absl::StatusOr<PrivateDaemons> Start(const v1::Config& config,
                                              const std::vector<std::string>& names);
  PrivateDaemons(PrivateDaemons&& other) noexcept;
  PrivateDaemons& operator=(PrivateDaemons&&) = delete;
  ~PrivateDaemons();

 private:
  explicit PrivateDaemons(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

}  // namespace strata::cli
