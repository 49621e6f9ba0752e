#include "tests/integration/mini_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/http_client.h"
#include "common/base/eventually.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace strata::integration {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

// Binds a port and returns it; 0 if there is none. As long as the socket lives nobody is given the
// port by chance, also not while the gateway is being restarted; the gateway itself can listen on
// it, since both sides allow the address to be used again and this one does not listen.
int ReservePort(UniqueFd* reservation) {
  UniqueFd socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(socket_fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      getsockname(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return 0;
  }
  *reservation = std::move(socket_fd);
  return ntohs(address.sin_port);
}

template <typename Condition>
bool Await(const Condition& condition) {
  return Eventually(condition, std::chrono::milliseconds(20));
}

std::string Text(const json::value& value, const char* pointer) {
  boost::system::error_code error;
  const json::value* found = value.find_pointer(pointer, error);
  if (found == nullptr || !found->is_string()) return "";
  return {found->get_string().data(), found->get_string().size()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<MiniCluster>> MiniCluster::Start(std::string_view settings,
                                                                const std::string& state_dir) {
  auto cluster = std::unique_ptr<MiniCluster>(new MiniCluster());
  std::string pattern = (fs::temp_directory_path() / "strata-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) return ErrnoStatus(errno, "cannot make a test folder");
  cluster->folder_ = pattern;
  cluster->state_dir_ = state_dir.empty() ? pattern + "/state" : state_dir;
  STRATA_RETURN_IF_ERROR(cluster->Launch(settings));
  return cluster;
}

absl::Status MiniCluster::Launch(std::string_view settings) {
  address_ = absl::StrCat("127.0.0.1:", ReservePort(&port_));
  // Tests share two cores with each other: daemons that sleep early get along better, and a plan is
  // waited for however long it takes.
  const std::string set =
      absl::StrCat("gateway { listen: \"", address_,
                   "\" plan_timeout_ms: 60000 } compute { spin_us: 100 } ", A(settings));
  const std::vector<std::string> command = {STRATA_BINARY, "run",
                                            absl::StrCat("--model=", STRATA_DEMO_MODEL),
                                            "--state_dir=" + state_dir_, "--set=" + set};
  supervisor_ = fork();
  if (supervisor_ < 0) return ErrnoStatus(errno, "cannot fork");
  if (supervisor_ == 0) {
    const int log = open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    std::vector<char*> argv;
    argv.reserve(command.size() + 1);
    for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  return AwaitHealthy();
}

MiniCluster::~MiniCluster() {
  if (supervisor_ > 0) {
    kill(supervisor_, SIGTERM);
    waitpid(supervisor_, nullptr, 0);
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string MiniCluster::Log() const {
  const std::ifstream file(folder_ + "/log");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::Status MiniCluster::AwaitHealthy() {
  const bool healthy = Await([&] {
    return cli::IsHealthy(address_) || waitpid(supervisor_, nullptr, WNOHANG) == supervisor_;
  });
  if (healthy && cli::IsHealthy(address_)) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("the daemons are not healthy:\n", Log()));
}

pid_t MiniCluster::Pid(std::string_view daemon) const {
  std::ifstream children(absl::StrCat("/proc/", supervisor_, "/task/", supervisor_, "/children"));
  for (pid_t pid = 0; children >> pid;) {
    std::string first;
    std::getline(std::ifstream(absl::StrCat("/proc/", pid, "/cmdline")), first, '\0');
    if (first.ends_with(absl::StrCat("/strata-", A(daemon)))) return pid;
  }
  return -1;
}

absl::Status MiniCluster::Kill(std::string_view daemon) {
  const pid_t pid = Pid(daemon);
  if (pid < 0) return absl::NotFoundError(absl::StrCat(A(daemon), " does not run"));
  if (kill(pid, SIGKILL) != 0) return ErrnoStatus(errno, absl::StrCat("cannot kill ", A(daemon)));
  return absl::OkStatus();
}

absl::Status MiniCluster::KillAndAwaitRestart(std::string_view daemon) {
  const pid_t before = Pid(daemon);
  STRATA_RETURN_IF_ERROR(Kill(daemon));
  if (!Await([&] { return Pid(daemon) > 0 && Pid(daemon) != before; })) {
    return absl::DeadlineExceededError(absl::StrCat(A(daemon), " was not started again:\n", Log()));
  }
  return AwaitHealthy();
}

absl::StatusOr<MiniCluster::Answer> MiniCluster::Chat(
    std::string_view message, int max_tokens, const std::function<bool(const Answer&)>& on_text,
    double temperature, bool ignore_end, std::string_view splice) const {
  json::object request = {
      {"messages", json::array{json::object{{"role", "user"}, {"content", message}}}},
      {"max_tokens", max_tokens},
      {"temperature", temperature},
      {"ignore_eos", ignore_end},
      {"stream", true},
      {"stream_options", json::object{{"include_usage", true}}}};
  if (splice != "as configured") {
    request["seed"] = 7;
    if (!splice.empty()) request["splice"] = splice;
  }
  Answer answer;
  STRATA_ASSIGN_OR_RETURN(
      const cli::HttpResponse response,
      cli::HttpPostStream(
          address_, "/v1/chat/completions", "", json::serialize(request),
          [&](std::string_view data) {
            if (data == "[DONE]") return true;
            boost::system::error_code error;
            const json::value event = json::parse({data.data(), data.size()}, error);
            if (error) return false;
            ++answer.events;
            answer.text += Text(event, "/choices/0/delta/content");
            answer.error += Text(event, "/error/message");
            const std::string reason = Text(event, "/choices/0/finish_reason");
            if (!reason.empty()) answer.finish_reason = reason;
            const json::value* usage = event.find_pointer("/usage", error);
            if (usage != nullptr && usage->is_object()) answer.usage = *usage;
            return on_text == nullptr || on_text(answer);
          }));
  answer.status = response.status;
  if (response.status != 200) {
    boost::system::error_code error;
    const json::value body = json::parse(response.body, error);
    answer.error = error ? response.body : Text(body, "/error/message");
  }
  return answer;
}

int MiniCluster::StoredBlocks() const {
  const auto metrics = cli::HttpGet(address_, "/metrics");
  if (!metrics.ok()) return -1;
  const std::string name = "\nstrata:kvstore_blocks ";
  const size_t at = metrics->body.find(name);
  return at == std::string::npos ? -1 : std::atoi(metrics->body.c_str() + at + name.size());
}

absl::StatusOr<json::value> MiniCluster::GetJson(const std::string& path) const {
  STRATA_ASSIGN_OR_RETURN(const cli::HttpResponse response, cli::HttpGet(address_, path));
  boost::system::error_code error;
  json::value value = json::parse(response.body, error);
  if (error) return absl::InternalError(absl::StrCat(path, " is no JSON: ", response.body));
  return value;
}

}  // namespace strata::integration
