// How long a compute daemon that starts beside a store with all experts in memory takes until it
// serves, and from then until the first token of an answer.
//
//   restart_bench --model_file=FILE [--prompts=16,512] [--rounds=3]
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <thread>

#include "cli/compute_client.h"
#include "cli/daemon_set.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/rpc/channel.h"
#include "strata/v1/expertstore.grpc.pb.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/speed.h"

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

extern char** environ;

ABSL_FLAG(std::string, model_file, "", "GGUF file whose experts fit into memory.");
ABSL_FLAG(std::vector<std::string>, prompts, std::vector<std::string>({"16", "512"}),
          "Tokens of the first prompt after a start.");
ABSL_FLAG(int, rounds, 3, "Starts for each length; medians are printed.");

namespace strata::bench {
namespace {

class Daemon {
 public:
  explicit Daemon(const cli::DaemonSpec& spec) {
    std::vector<char*> argv;
    argv.reserve(spec.command.size() + 1);
    for (const std::string& word : spec.command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    if (posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ) != 0) pid_ = -1;
  }
  ~Daemon() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

 private:
  pid_t pid_ = -1;
};

absl::Status WaitUntilFull(const v1::Config& config) {
  STRATA_ASSIGN_OR_RETURN(const auto channel,
                          rpc::Connect(config.expertstore().listen(), config.tls()));
  const auto store = v1::ExpertStore::NewStub(channel);
  for (;;) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    rpc::PrepareCall(context, "", std::chrono::minutes(2));
    v1::ExpertStoreStatusResponse status;
    STRATA_RETURN_IF_ERROR(rpc::FromGrpc(store->Status(&context, {}, &status)));
    if (status.resident() == status.experts()) return absl::OkStatus();
    if (status.slots() < status.experts()) {
      return absl::FailedPreconditionError("the experts do not all fit into memory here");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

absl::Status Run() {
  STRATA_ASSIGN_OR_RETURN(const cli::RuntimeFolder folder, cli::RuntimeFolder::Create());
  v1::Config config;
  config.set_model(absl::GetFlag(FLAGS_model_file));
  config.set_runtime_dir(folder.path());
  config.set_state_dir(folder.path());
  config.mutable_compute()->set_kvstore("none");
  STRATA_RETURN_IF_ERROR(config::FillDefaults(config));
  STRATA_ASSIGN_OR_RETURN(const std::vector<cli::DaemonSpec> daemons,
                          cli::DaemonCommands(config, {"expertstore", "compute"}));
  const Daemon store(daemons[0]);
  STRATA_RETURN_IF_ERROR(WaitUntilFull(config));
  std::cout << "| prompt | start to serving s | serving to first token s | the same again s |\n"
               "|---|---|---|---|\n";
  for (const std::string& text : absl::GetFlag(FLAGS_prompts)) {
    size_t length = 0;
    if (!absl::SimpleAtoi(text, &length)) return absl::InvalidArgumentError("--prompts");
    const std::vector<uint32_t> prompt = PromptTokens(config.model(), 256, length);
    std::vector<double> start, first, again;
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      const Stopwatch starting;
      const Daemon compute(daemons[1]);
      STRATA_ASSIGN_OR_RETURN(cli::ComputeClient client,
                              cli::ComputeClient::Connect(config.compute().listen(), {}));
      start.push_back(starting.Seconds());
      const Stopwatch answering;
      STRATA_RETURN_IF_ERROR(client.Generate(prompt, 1).status());
      first.push_back(answering.Seconds());
      const Stopwatch repeated;
      STRATA_RETURN_IF_ERROR(client.Generate(prompt, 1).status());
      again.push_back(repeated.Seconds());
    }
    std::cout << absl::StreamFormat("| %d | %.2f | %.2f | %.2f |\n", length, Median(start),
                                    Median(first), Median(again));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) { return strata::bench::RunMain(argc, argv, strata::bench::Run); }
