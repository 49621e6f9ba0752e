// The `strata` command.
#include <array>
#include <iostream>
#include <string>
#include <vector>

#include "cli/command.h"
#include "common/base/status.h"
#include "common/config/config.h"

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"

namespace strata::cli {
namespace {

constexpr std::array kCommands = {
    Command{"run", "[--model=FILE]", "start all daemons here; Ctrl-C stops them", Run},
    Command{"chat", "[--gateway=HOST:PORT]", "talk to a running gateway", Chat},
    Command{"inspect", "[FILE]", "explain a model file and how it fits this machine", Inspect},
    Command{"memory", "[--limit_gb=N]",
            "what experts take of memory; gives some back while serving", Memory},
    Command{"pack", "MODEL OUT [--layout=rows8] [--overwrite]",
            "write a model's experts once in the form in which they are read best", Pack},
    Command{"quantize", "IN OUT [--type=T]", "convert a model's matrices", Quantize},
    Command{"bench", "model [--model=FILE] | kernels [TYPE...]",
            "measure prompts and generation, or the products of each weight type", Bench},
    Command{"eval", "splice [--model=FILE]",
            "what moving stored text into a prompt costs and saves with this model", Eval},
    Command{"cache", "list | show ID | pin ID | unpin ID | drop ID|all | verify | gc",
            "the conversations that kvstore keeps", Cache},
    Command{"trace", "OUT [--model=FILE]", "record which experts a model uses", Trace},
    Command{"simulate", "[TRACE]", "speed of tiers of any size, from a record or a model's shape",
            Simulate},
};

std::string Usage() {
  std::string text = "runs large mixture-of-experts models at home.\n\nCommands:\n";
  for (const Command& command : kCommands) {
    absl::StrAppend(&text, "  strata ", A(command.name), " ", A(command.arguments), "\n      ",
                    A(command.summary), "\n");
  }
  return text;
}

}  // namespace

int Main(int argc, char** argv) {
  absl::SetProgramUsageMessage(Usage());
  config::ShowOwnFlagsInHelp();
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() < 2) {
    std::cerr << "strata " << Usage() << "\nFlags: strata --help\n";
    return 2;
  }
  const std::vector<std::string> arguments(rest.begin() + 2, rest.end());
  for (const Command& command : kCommands) {
    if (command.name != rest[1]) continue;
    const absl::Status status = command.run(arguments);
    if (status.ok()) return 0;
    std::cerr << "strata " << rest[1] << ": " << status.message() << "\n";
    return absl::IsInvalidArgument(status) ? 2 : 1;
  }
  std::cerr << "strata: there is no command '" << rest[1] << "'; see strata --help\n";
  return 2;
}

}  // namespace strata::cli

int main(int argc, char** argv) { return strata::cli::Main(argc, argv); }
