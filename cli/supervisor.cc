#include "cli/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"

namespace strata::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPollInterval{100};
constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{5000};
constexpr milliseconds kYoung{5000};
constexpr milliseconds kStopPatience{15'000};
constexpr int kMaxYoungDeaths = 5;
constexpr int kExitConfiguration = 2;  // what DaemonMain returns for a bad command line or file

sigset_t WatchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, s);
  return set;
}

std::string DeathNotice(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return absl::StrCat("was killed by signal ", WTERMSIG(wait_status), " (",
                        strsignal(WTERMSIG(wait_status)), ")");
  }
  return absl::StrCat("ended with exit code ", WEXITSTATUS(wait_status));
}

[[noreturn]] void ExecuteChild(const DaemonSpec& spec, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(0);  // the parent died before the line above
  const sigset_t signals = WatchedSignals();
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
  setpgid(0, 0);  // Ctrl-C on the terminal is for the supervisor, which stops in order
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  std::vector<char*> argv;
  argv.reserve(spec.command.size() + 1);
  for (const std::string& argument : spec.command) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  dprintf(STDERR_FILENO, "cannot execute '%s': %s\n", argv[0], strerror(errno));
  _exit(kExitConfiguration);
}

}  // namespace

Supervisor::Supervisor(std::vector<DaemonSpec> daemons) : colour_(isatty(STDERR_FILENO) == 1) {
  for (DaemonSpec& spec : daemons) {
    name_width_ = std::max(name_width_, spec.name.size());
    Child child;
    child.spec = std::move(spec);
    children_.push_back(std::move(child));
  }
}

Supervisor::~Supervisor() { StopAll(); }

absl::Status Supervisor::Start(Child& child) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot make a pipe");
  UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, absl::StrCat("cannot start ", child.spec.name));
  if (pid == 0) ExecuteChild(child.spec, write_end.get(), parent);
  fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  child.pid = pid;
  child.output = std::move(read_end);
  child.started = Clock::now();
  return absl::OkStatus();
}

absl::Status Supervisor::Run(const Options& options) {
  const sigset_t signals = WatchedSignals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signals_.Reset(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return ErrnoStatus(errno, "cannot watch signals");

  for (Child& child : children_) STRATA_RETURN_IF_ERROR(Start(child));
  absl::Status status;
  bool ready = options.ready == nullptr;
  while (status.ok() && !signalled_ && !(options.finished && options.finished())) {
    PollOnce(kPollInterval);
    status = Reap();
    for (Child& child : children_) {
      if (status.ok() && child.pid < 0 && Clock::now() >= child.restart_at) status = Start(child);
    }
    if (!ready && options.ready()) {
      ready = true;
      options.on_ready();
    }
  }
  StopAll();
  return status;
}

absl::Status Supervisor::Reap() {
  for (;;) {
    int wait_status = 0;
    const pid_t pid = waitpid(-1, &wait_status, WNOHANG);
    if (pid <= 0) return absl::OkStatus();
    const auto it = std::find_if(children_.begin(), children_.end(),
                                 [&](const Child& c) { return c.pid == pid; });
    if (it == children_.end()) continue;
    Child& child = *it;
    CopyOutput(child);
    child.pid = -1;
    child.output.Reset();
    const bool young = Clock::now() - child.started < kYoung;
    child.young_deaths = young ? child.young_deaths + 1 : 0;
    const std::string notice = absl::StrCat(child.spec.name, " ", DeathNotice(wait_status));
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kExitConfiguration) {
      return absl::FailedPreconditionError(absl::StrCat(notice, ": see its message above"));
    }
    if (child.young_deaths >= kMaxYoungDeaths) {
      return absl::AbortedError(
          absl::StrCat(notice, " for the ", kMaxYoungDeaths, "th time: see its messages above"));
    }
    const milliseconds pause =
        std::min(kLongestPause, kFirstPause * (1 << std::max(0, child.young_deaths - 1)));
    child.restart_at = Clock::now() + pause;
    if (!signalled_) LogWarning(notice, "; starting it again in ", pause.count(), " ms");
  }
}

void Supervisor::PollOnce(milliseconds timeout) {
  std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}};
  std::vector<Child*> readers;
  for (Child& child : children_) {
    if (!child.output.valid()) continue;
    fds.push_back({child.output.get(), POLLIN, 0});
    readers.push_back(&child);
  }
  if (poll(fds.data(), fds.size(), static_cast<int>(timeout.count())) <= 0) return;
  for (size_t i = 0; i < readers.size(); ++i) {
    if (fds[i + 1].revents != 0) CopyOutput(*readers[i]);
  }
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) signalled_ = true;
  }
}

void Supervisor::CopyOutput(Child& child) {
  char buffer[16384];
  for (;;) {
    const ssize_t n = read(child.output.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) child.output.Reset();
      break;
    }
    child.partial_line.append(buffer, static_cast<size_t>(n));
  }
  size_t begin = 0;
  for (size_t end; (end = child.partial_line.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    PrintLine(child, std::string_view(child.partial_line).substr(begin, end - begin));
  }
  child.partial_line.erase(0, begin);
}

void Supervisor::PrintLine(const Child& child, std::string_view line) const {
  // One colour a daemon, by its place in the list.
  const auto index = static_cast<int>(&child - children_.data());
  std::string text = colour_ ? absl::StrCat("\033[3", 1 + (index + 1) % 6, "m") : "";
  absl::StrAppend(&text, child.spec.name, std::string(name_width_ - child.spec.name.size(), ' '),
                  colour_ ? " |\033[0m " : " | ", A(line), "\n");
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

void Supervisor::StopAll() {
  std::vector<int> groups;
  for (const Child& child : children_) groups.push_back(child.spec.stop_group);
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  const bool was_signalled = std::exchange(signalled_, true);  // no restarts from here on
  for (const int group : groups) {
    const auto alive = [&] {
      return std::any_of(children_.begin(), children_.end(),
                         [&](const Child& c) { return c.spec.stop_group == group && c.pid > 0; });
    };
    const auto send = [&](int signal) {
      for (const Child& child : children_) {
        if (child.spec.stop_group == group && child.pid > 0) kill(child.pid, signal);
      }
    };
    send(SIGTERM);
    const Clock::time_point give_up = Clock::now() + kStopPatience;
    while (alive() && Clock::now() < give_up) {
      PollOnce(milliseconds(20));
      (void)Reap();  // whatever its exit code, it is gone
    }
    if (alive()) {
      LogWarning("daemons did not stop within ", kStopPatience.count() / 1000, " s: killing them");
      send(SIGKILL);
      while (alive()) {
        PollOnce(milliseconds(20));
        (void)Reap();
      }
    }
  }
  signalled_ = was_signalled;
}

}  // namespace strata::cli
