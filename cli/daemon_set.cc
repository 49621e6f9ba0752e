#include "cli/daemon_set.h"

#include <google/protobuf/text_format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path ExecutableFolder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

// The order in which daemons stop: the gateway first (no new requests), then compute (it saves what
// it has computed), then the stores.
int StopGroup(const std::string& name) {
  if (name == "gateway") return 0;
  return name == "compute" ? 1 : 2;
}

}  // namespace

absl::StatusOr<RuntimeFolder> RuntimeFolder::Create() {
  std::string base = Environment("XDG_RUNTIME_DIR");
  if (base.empty()) base = "/tmp";
  std::string pattern = base + "/strata-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("cannot make a folder for sockets in '", base, "'"));
  }
  return RuntimeFolder(pattern);
}

RuntimeFolder::RuntimeFolder(RuntimeFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})) {}

RuntimeFolder::~RuntimeFolder() {
  std::error_code ignored;  // a leftover folder is untidy, not wrong
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

absl::StatusOr<std::string> FindModel(const std::string& configured) {
  const fs::path binaries = ExecutableFolder();
  std::vector<std::string> candidates;
  if (!configured.empty()) {
    candidates = {configured};
  } else if (const std::string named = Environment("STRATA_MODEL"); !named.empty()) {
    candidates = {named};
  } else {
    candidates = {(binaries / "../share/strata/strata-demo.gguf").lexically_normal(),
                  (binaries / "../../../deploy/demo/strata-demo.gguf").lexically_normal()};
  }
  std::string tried;
  for (const std::string& path : candidates) {
    if (access(path.c_str(), R_OK) == 0) return path;
    absl::StrAppend(&tried, "\n    ", path, " (", strerror(errno), ")");
  }
  return absl::NotFoundError(
      absl::StrCat("no model file: pass --model FILE.gguf or set STRATA_MODEL; tried", tried));
}

absl::Status CompleteForUser(v1::Config& config) {
  STRATA_ASSIGN_OR_RETURN(const std::string model, FindModel(config.model()));
  config.set_model(fs::absolute(model));
  if (config.state_dir().empty()) {
    std::string base = Environment("XDG_STATE_HOME");
    if (base.empty())
      base = Environment("HOME").empty() ? "/tmp" : Environment("HOME") + "/.local/state";
    config.set_state_dir(base + "/strata");
  }
  std::error_code error;
  fs::create_directories(config.state_dir(), error);
  if (error) {
    return absl::PermissionDeniedError(absl::StrCat("cannot create the state folder '",
                                                    config.state_dir(), "': ", error.message(),
                                                    "; choose another with --state_dir"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ProgramBeside(const std::string& name) {
  const std::string path = ExecutableFolder() / name;
  if (access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(absl::StrCat(
      "the program '", path, "' is missing: build all targets or install them in one folder"));
}

absl::StatusOr<std::vector<DaemonSpec>> DaemonCommands(const v1::Config& config,
                                                       const std::vector<std::string>& names) {
  const std::string file = config.runtime_dir() + "/strata.textproto";
  std::string text;
  google::protobuf::TextFormat::PrintToString(config, &text);
  std::ofstream out(file);
  out << text;
  out.close();
  if (!out) return absl::InternalError(absl::StrCat("cannot write '", file, "'"));

  std::vector<DaemonSpec> specs;
  for (const std::string& name : names) {
    STRATA_ASSIGN_OR_RETURN(const std::string binary, ProgramBeside("strata-" + name));
    specs.push_back({name, {binary, "--config=" + file}, StopGroup(name)});
  }
  return specs;
}

absl::StatusOr<PrivateDaemons> PrivateDaemons::Start(const v1::Config& config,
                                                     const std::vector<std::string>& names) {
  STRATA_ASSIGN_OR_RETURN(std::vector<DaemonSpec> daemons, DaemonCommands(config, names));
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "cannot start the daemons");
  if (pid == 0) {
    const absl::Status status = Supervisor(std::move(daemons)).Run({});
    if (!status.ok()) LogError(status.message());
    _exit(status.ok() ? 0 : 1);
  }
  return PrivateDaemons(pid);
}

PrivateDaemons::PrivateDaemons(PrivateDaemons&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)) {}

PrivateDaemons::~PrivateDaemons() {
  if (pid_ < 0) return;
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

}  // namespace strata::cli
