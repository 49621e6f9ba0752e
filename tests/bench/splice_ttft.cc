// Time to the first token of a returning agent, measured where the client sees it (the gateway's
// HTTP stream), against reading the whole prompt:
//
//   fast, safe   the prompt again with three lines changed: date, folder, git status or commit
//   return       the very same prompt after all daemons were stopped and started again
//
// With --saving instead: what keeping the state costs a full read, in time to the first token and
// in processor time, against daemons without a kvstore; both take turns.
//
//   splice_ttft [--prompt=FILE] [--most_tokens=16000] [--rounds=3] [--model_file=FILE]
//
// The prompt is a recorded first prompt of a coding agent (see ../shared/captures beside the
// checkout). Without a model file one of random weights is made, with many thin layers: timing does
// not depend on what the weights say. Every round changes the lines anew, so nothing is found that
// an earlier round left.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include <boost/json.hpp>

#include "cli/daemon_set.h"
#include "cli/http_client.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/gguf/reader.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/speed.h"
#include "tests/oracle/random_model.h"
#include "tests/oracle/shared_file.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

ABSL_FLAG(std::string, prompt, "captures/opencode.A.txt", "Prompt file, or its name in shared/.");
ABSL_FLAG(uint32_t, most_tokens, 16000, "Longer prompts lose lines from their middle.");
ABSL_FLAG(uint32_t, rounds, 3, "Measurements of each kind; the median counts.");
ABSL_FLAG(std::string, model_file, "", "GGUF file with a vocabulary; empty: random weights.");
ABSL_FLAG(uint32_t, layers, 24, "Layers of the random model.");
ABSL_FLAG(bool, saving, false, "Measure what saving costs, and nothing else.");
ABSL_FLAG(std::string, work_dir, "", "Where model and state are kept; empty: a temporary folder.");

namespace strata::bench {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr char kAddress[] = "127.0.0.1:18438";

// What differs between two sessions, as the agents write it: one line each.
struct Change {
  const char* before;
  const char* after;  // a number is appended
};
constexpr Change kChanges[] = {
    {"Today's date: ", "Today's date: Tue Dec 1, year "},  // OpenCode
    {"Working directory: ", "Working directory: /home/dev/work/other/project"},
    {"Is directory a git repo: ", "Is directory a git repo: no, status "},
    {"Today's date is ", "Today's date is Tue Dec 1, year "},  // Qwen Code
    {"currently working in the directory: ",
     "currently working in the directory: /home/dev/work/other/project"},
    {"git: Current branch: ", "git: Current branch: feature-"}};

// Replaces, at the first place of each change, the rest of the line. Returns the number of lines.
int ChangeLines(int number, std::string* text) {
  int lines = 0;
  for (const Change& change : kChanges) {
    const size_t at = text->find(change.before);
    if (at == std::string::npos) continue;
    const size_t end = text->find('\n', at);
    text->replace(at, end - at, absl::StrCat(change.after, number));
    ++lines;
  }
  return lines;
}

struct Reading {
  double seconds = 0;  // to the first token
  int prompt = 0;
  int cached = 0;
  int spliced = 0;
};

int Number(const json::value& value, const char* pointer) {
  boost::system::error_code error;
  const json::value* found = value.find_pointer(pointer, error);
  return found != nullptr && found->is_number() ? found->to_number<int>() : 0;
}

absl::StatusOr<Reading> Read(const std::string& prompt, const char* splice) {
  const json::object request = {{"prompt", prompt},
                                {"max_tokens", 1},
                                {"temperature", 0},
                                {"ignore_eos", true},
                                {"splice", splice},
                                {"stream", true},
                                {"stream_options", json::object{{"include_usage", true}}}};
  const std::string body = json::serialize(request);
  Reading reading;
  const Stopwatch watch;
  STRATA_ASSIGN_OR_RETURN(
      const cli::HttpResponse response,
      cli::HttpPostStream(kAddress, "/v1/completions", "", body, [&](std::string_view data) {
        if (reading.seconds == 0 && data.find("\"text\":") != std::string_view::npos) {
          reading.seconds = watch.Seconds();
        }
        boost::system::error_code error;
        const json::value event = json::parse({data.data(), data.size()}, error);
        if (!error && Number(event, "/usage/prompt_tokens") > 0) {
          reading.prompt = Number(event, "/usage/prompt_tokens");
          reading.cached = Number(event, "/usage/prompt_tokens_details/cached_tokens");
          reading.spliced = Number(event, "/usage/prompt_tokens_details/spliced_tokens");
        }
        return true;
      }));
  if (response.status != 200) return absl::InternalError(response.body);
  return reading;
}

// Saving goes on behind the answer: waits until nothing new was stored for a while.
absl::Status AwaitSaved() {
  for (int quiet = 0, last = -1; quiet < 3;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    STRATA_ASSIGN_OR_RETURN(const cli::HttpResponse props, cli::HttpGet(kAddress, "/metrics"));
    std::istringstream lines(props.body);
    int now = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("strata:kvstore_blocks ")) now = std::stoi(line.substr(line.rfind(' ')));
    }
    quiet = now == last ? quiet + 1 : 0;
    last = now;
  }
  return absl::OkStatus();
}

// Processor seconds of the threads of one of our daemons so far, the busiest first. Daemons are
// told from other people's by the runtime folder in their command line.
std::vector<double> ThreadSeconds(std::string_view program, const std::string& folder) {
  std::vector<double> seconds;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const fs::path exe = fs::read_symlink(entry.path() / "exe", error);
    if (error || exe.filename() != program) continue;
    std::string command;
    std::getline(std::ifstream(entry.path() / "cmdline"), command);
    if (command.find(folder) == std::string::npos) continue;
    for (const auto& thread : fs::directory_iterator(entry.path() / "task", error)) {
      double nanoseconds = 0;
      std::ifstream(thread.path() / "schedstat") >> nanoseconds;
      seconds.push_back(1e-9 * nanoseconds);
    }
  }
  std::sort(seconds.rbegin(), seconds.rend());
  return seconds;
}

// What was used since the start: for little but reading a prompt and storing it. Compute's busy
// threads read; all the others (gRPC's and the one that sends) are there for the state.
struct Usage {
  double compute = 0;
  double sending = 0;
  double kvstore = 0;
  double All() const { return compute + kvstore; }
  double ForState() const { return sending + kvstore; }
  static Usage Now(const std::string& folder) {
    Usage usage;
    const std::vector<double> threads = ThreadSeconds("strata-compute", folder);
    for (const double seconds : threads) {
      usage.compute += seconds;
      if (seconds < threads.front() / 5) usage.sending += seconds;
    }
    for (const double seconds : ThreadSeconds("strata-kvstore", folder)) usage.kvstore += seconds;
    return usage;
  }
};

absl::StatusOr<std::string> PromptText(const std::string& model_path) {
  const std::string given = absl::GetFlag(FLAGS_prompt);
  std::ifstream file(fs::exists(given) ? given : oracle::SharedFile(given));
  if (!file) return absl::NotFoundError(absl::StrCat("--prompt: cannot read '", given, "'"));
  std::stringstream read;
  read << file.rdbuf();
  std::string text = read.str();
  STRATA_ASSIGN_OR_RETURN(const auto model, gguf::Model::Open(model_path));
  STRATA_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::FromGguf(model->metadata()));
  while (tokenizer->Encode(text, true).size() > absl::GetFlag(FLAGS_most_tokens)) {
    const size_t begin = text.rfind('\n', text.size() / 2) + 1;
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    text.erase(begin, end + 1 - begin);
  }
  return text;
}

class Table {
 public:
  explicit Table(double full) : full_(full) {
    std::cout << "| request | tokens | not read | approximate | first token, s | of a full read |\n"
                 "|---|---|---|---|---|---|\n";
  }
  void Add(const std::string& name, std::vector<Reading> readings) {
    std::nth_element(readings.begin(), readings.begin() + readings.size() / 2, readings.end(),
                     [](const Reading& a, const Reading& b) { return a.seconds < b.seconds; });
    const Reading& r = readings[readings.size() / 2];
    std::cout << absl::StreamFormat("| %s | %d | %d | %d | %.3f | 1/%.1f |\n", name, r.prompt,
                                    r.cached, r.spliced, r.seconds, full_ / r.seconds)
              << std::flush;
  }

 private:
  double full_;
};

absl::Status Saving(v1::Config config, const std::string& text) {
  std::cout
      << "| kvstore | tokens | first token, s | compute, processor s | of it sending | kvstore, "
         "processor s |\n|---|---|---|---|---|---|\n";
  std::vector<double> seconds, processor, state;  // of pairs: saved / not, less one
  for (uint32_t round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    Reading read[2];
    Usage usage[2];
    for (const bool second : {false, true}) {
      const bool saving = second == (round % 2 == 1);  // machines get slower and faster
      config.mutable_compute()->set_kvstore(saving ? config.kvstore().listen() : "none");
      config.mutable_gateway()->set_kvstore(config.compute().kvstore());
      STRATA_ASSIGN_OR_RETURN(
          const cli::PrivateDaemons daemons,
          cli::PrivateDaemons::Start(config, {"expertstore", "kvstore", "compute", "gateway"}));
      STRATA_RETURN_IF_ERROR(cli::AwaitHealthy(kAddress));
      STRATA_RETURN_IF_ERROR(Read("A short text that warms up everything.", "off").status());
      STRATA_ASSIGN_OR_RETURN(const Reading reading,
                              Read(absl::StrCat("Session ", round, ".\n", text), "off"));
      STRATA_RETURN_IF_ERROR(AwaitSaved());
      const Usage used = Usage::Now(config.runtime_dir());
      std::cout << absl::StreamFormat("| %s | %d | %.3f | %.2f | %.3f | %.3f |\n",
                                      saving ? "saves" : "none", reading.prompt, reading.seconds,
                                      used.compute, used.sending, used.kvstore)
                << std::flush;
      read[saving] = reading;
      usage[saving] = used;
    }
    seconds.push_back(read[1].seconds / read[0].seconds - 1);
    processor.push_back(usage[1].All() / usage[0].All() - 1);
    state.push_back((usage[1].ForState() - usage[0].ForState()) / usage[0].All());
  }
  std::cout << absl::StreamFormat(
      "medians of pairs: saving costs %.1f %% of the time to the first token, %.1f %% of all "
      "processor time; sending and storing by themselves %.2f %%\n",
      100 * Median(seconds), 100 * Median(processor), 100 * Median(state));
  return absl::OkStatus();
}

absl::Status Main() {
  STRATA_ASSIGN_OR_RETURN(const cli::RuntimeFolder folder, cli::RuntimeFolder::Create());
  const std::string work =
      absl::GetFlag(FLAGS_work_dir).empty() ? folder.path() : absl::GetFlag(FLAGS_work_dir);
  v1::Config config;
  config.set_model(absl::GetFlag(FLAGS_model_file));
  if (config.model().empty()) {
    config.set_model(absl::StrCat(work, "/thin", absl::GetFlag(FLAGS_layers), ".gguf"));
    oracle::RandomModel shape;
    shape.layers = absl::GetFlag(FLAGS_layers);
    shape.embedding = 512;
    shape.heads = 4;
    shape.kv_heads = 1;
    shape.feed_forward = 512;
    shape.experts = 16;
    shape.experts_used = 4;
    shape.context = 32768;
    shape.type = TensorType::kQ4_K;
    STRATA_ASSIGN_OR_RETURN(shape.tokenizer_of, cli::FindModel(""));
    if (!fs::exists(config.model())) {
      STRATA_RETURN_IF_ERROR(oracle::WriteRandomModel(config.model(), shape));
    }
  }
  config.set_runtime_dir(folder.path());
  config.set_state_dir(folder.path() + "/state");
  config.mutable_gateway()->add_listen(kAddress);
  config.mutable_compute()->set_context_length(absl::GetFlag(FLAGS_most_tokens) + 1024);
  config.mutable_compute()->set_max_sequences(2);
  STRATA_RETURN_IF_ERROR(cli::CompleteForUser(config));
  STRATA_RETURN_IF_ERROR(config::FillDefaults(config));
  STRATA_ASSIGN_OR_RETURN(const std::string text, PromptText(config.model()));
  if (absl::GetFlag(FLAGS_saving)) return Saving(config, text);
  const std::vector<std::string> all = {"expertstore", "kvstore", "compute", "gateway"};

  std::vector<Reading> full, fast, safe, again;
  double save_share = 0;
  {
    STRATA_ASSIGN_OR_RETURN(const cli::PrivateDaemons daemons,
                            cli::PrivateDaemons::Start(config, all));
    STRATA_RETURN_IF_ERROR(cli::AwaitHealthy(kAddress));
    STRATA_RETURN_IF_ERROR(Read("A short text that warms up everything.", "off").status());
    STRATA_ASSIGN_OR_RETURN(const Reading first, Read(text, "off"));
    STRATA_RETURN_IF_ERROR(AwaitSaved());
    const Usage used = Usage::Now(folder.path());
    save_share = (used.sending + used.kvstore) / (used.compute - used.sending);
    full.push_back(first);
    int number = 2026;
    for (uint32_t i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
      for (const char* mode : {"fast", "safe"}) {
        std::string changed = text;
        const int lines = ChangeLines(++number, &changed);
        if (i == 0 && std::string_view(mode) == "fast") {
          std::cout << absl::GetFlag(FLAGS_prompt) << ", " << lines << " lines changed\n";
        }
        STRATA_ASSIGN_OR_RETURN(const Reading reading, Read(changed, mode));
        (std::string_view(mode) == "fast" ? fast : safe).push_back(reading);
        STRATA_RETURN_IF_ERROR(AwaitSaved());
      }
    }
  }
  for (uint32_t i = 0; i < absl::GetFlag(FLAGS_rounds) + 2; ++i) {
    STRATA_ASSIGN_OR_RETURN(const cli::PrivateDaemons daemons,
                            cli::PrivateDaemons::Start(config, all));
    STRATA_RETURN_IF_ERROR(cli::AwaitHealthy(kAddress));
    STRATA_RETURN_IF_ERROR(Read("A short text that warms up everything.", "off").status());
    STRATA_ASSIGN_OR_RETURN(const Reading reading, Read(text, "off"));
    again.push_back(reading);
  }
  Table table(full.front().seconds);
  table.Add("full read", full);
  table.Add("three lines changed, fast", fast);
  table.Add("three lines changed, safe", safe);
  table.Add("the same after a restart", again);
  std::cout << absl::StreamFormat(
      "saving: processor time of kvstore and of sending to it %.1f %% of that of reading\n",
      100 * save_share);
  return absl::OkStatus();
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) { return strata::bench::RunMain(argc, argv, strata::bench::Main); }
