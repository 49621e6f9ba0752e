// compute and kvstore die at random moments while four clients talk.
//
// STRATA_KILLS=100 asks for more than the few kills of a normal run; STRATA_KILLS_SEED for others.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "common/base/test_folder.h"
#include "tests/integration/mini_cluster.h"

namespace strata::integration {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kClients = 4;
constexpr int kTokens = 70;
// `strata run` gives up on a daemon that dies five times in a row before it is five seconds old,
// and the gateway on a request that four computes died on without a token. A client may see a token
// only after the kill that it came before, so one death more may lie behind its last token than we
// count.
constexpr int kMostYoungDeaths = 4;
constexpr int kMostDeathsWithoutToken = 2;
constexpr milliseconds kAdult{5500};

int FromEnvironment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

struct Question {
  std::string text;
  double temperature = 0;
};

// Two to four blocks long, some with a common beginning; greedy and seeded.
std::vector<Question> Questions() {
  std::vector<Question> questions;
  for (int i = 0; i < 2 * kClients; ++i) {
    std::string text = i % 2 == 0 ? "Read this list first." : "Here is another list.";
    for (int n = 0; n < 12 + 4 * (i / 2); ++n) {
      text += " Item " + std::to_string(n) + ": a cynic, a lawyer and patience.";
    }
    questions.push_back({text + " What is a CYNIC?", i % 4 < 2 ? 0 : 0.8});
  }
  return questions;
}

// Kills a daemon that runs, but never so often that `strata run` gives up on it.
class Killer {
 public:
  explicit Killer(const MiniCluster& cluster) : cluster_(cluster) {}

  // False if the daemon does not run or needs a rest.
  bool Kill(int victim) {
    Life& life = lives_[victim];
    const pid_t pid = cluster_.Pid(kNames[victim]);
    if (pid < 0) return false;
    const auto now = steady_clock::now();
    if (pid != life.pid) {
      life.pid = pid;
      life.seen = now;
    }
    const bool young = now - life.seen < kAdult;
    if (young && life.young_deaths >= kMostYoungDeaths) return false;
    if (kill(pid, SIGKILL) != 0) return false;
    life.young_deaths = young ? life.young_deaths + 1 : 0;
    ++life.kills;
    return true;
  }
  int kills(int victim) const { return lives_[victim].kills; }

  static constexpr const char* kNames[2] = {"compute", "kvstore"};

 private:
  struct Life {
    pid_t pid = -1;
    steady_clock::time_point seen;
    int young_deaths = 0;
    int kills = 0;
  };
  const MiniCluster& cluster_;
  Life lives_[2];
};

TEST(Kills, EveryStreamEndsWithTheTextOfAnUndisturbedRun) {
  const TestFolder folder;
  const std::string state = folder / "state";
  // The portable kernels are slow enough for answers to be caught in the middle.
  auto started = MiniCluster::Start("compute { isa: \"scalar\" threads: 1 }", state);
  ASSERT_TRUE(started.ok()) << started.status();
  const MiniCluster& cluster = **started;
  const std::vector<Question> questions = Questions();
  const auto ask = [&](const Question& q,
                       const std::function<bool(const MiniCluster::Answer&)>& on_text = nullptr) {
    return cluster.Chat(q.text, kTokens, on_text, q.temperature, /*ignore_end=*/true);
  };
  std::vector<std::string> expected;
  for (const Question& q : questions) {
    const auto answer = ask(q);
    ASSERT_TRUE(answer.ok() && answer->status == 200) << answer.status() << cluster.Log();
    expected.push_back(answer->text);
  }

  std::atomic<bool> stop{false};
  std::atomic<int> compute_kills{0};
  std::vector<std::atomic<int>> kills_at_last_token(kClients);
  std::atomic<bool> failed{false};
  std::atomic<int> answers{0};
  std::vector<std::string> failures(kClients);
  std::vector<std::thread> clients;
  for (size_t c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      for (size_t i = c; !stop && !failed; i = (i + 3) % questions.size()) {
        const auto answer = ask(questions[i], [&](const auto&) {
          kills_at_last_token[c] = compute_kills.load();
          return true;
        });
        if (!answer.ok()) {
          failures[c] = std::string(answer.status().message());
        } else if (answer->status != 200 || !answer->error.empty()) {
          failures[c] = std::to_string(answer->status) + " " + answer->error;
        } else if (answer->text != expected[i]) {
          failures[c] = "expected '" + expected[i] + "', got '" + answer->text + "'";
        }
        if (!failures[c].empty()) failed = true;
        ++answers;
      }
    });
  }

  const int wanted = FromEnvironment("STRATA_KILLS", 12);
  std::mt19937 random(static_cast<unsigned>(FromEnvironment("STRATA_KILLS_SEED", 1)));
  Killer killer(cluster);
  const auto give_up = steady_clock::now() + std::chrono::seconds(60 + 60 * wanted);
  while (killer.kills(0) + killer.kills(1) < wanted && steady_clock::now() < give_up && !failed) {
    std::this_thread::sleep_for(milliseconds(random() % 800));
    const int victim = static_cast<int>(random() % 2);
    const bool spare_compute = std::any_of(
        kills_at_last_token.begin(), kills_at_last_token.end(),
        [&](const auto& kills) { return compute_kills - kills >= kMostDeathsWithoutToken; });
    for (const int daemon : {victim, 1 - victim}) {
      if (daemon == 0 && spare_compute) continue;
      if (killer.Kill(daemon)) break;
    }
    compute_kills = killer.kills(0);
  }
  stop = true;
  for (std::thread& client : clients) client.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "") << cluster.Log();
  EXPECT_EQ(killer.kills(0) + killer.kills(1), wanted);
  EXPECT_GE(answers, kClients);
  std::printf("%d kills of compute, %d of kvstore, %d answers\n", killer.kills(0), killer.kills(1),
              answers.load());

  ASSERT_TRUE((*started)->AwaitHealthy().ok()) << cluster.Log();
  for (size_t i = 0; i < questions.size(); ++i) {
    const auto answer = ask(questions[i]);
    ASSERT_TRUE(answer.ok() && answer->status == 200) << answer.status() << cluster.Log();
    EXPECT_EQ(answer->text, expected[i]);
  }
  // A store that could not be opened is moved aside.
  for (const auto& file : std::filesystem::recursive_directory_iterator(state)) {
    EXPECT_EQ(file.path().string().find("damaged"), std::string::npos) << file.path();
  }
  started->reset();
}

}  // namespace
}  // namespace strata::integration
