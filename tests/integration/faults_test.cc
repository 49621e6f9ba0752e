// Daemons that die in the middle of an answer.
#include <gtest/gtest.h>

#include "common/base/eventually.h"
#include "tests/integration/mini_cluster.h"

namespace strata::integration {
namespace {

constexpr char kQuestion[] = "Tell me what LAWYER means.";
constexpr int kTokens = 300;
constexpr std::chrono::milliseconds kPause{50};  // between two questions of Eventually
constexpr char kOtherDate[] = "the second day of a week that began on Monday";
constexpr char kSpliced[] = "/prompt_tokens_details/spliced_tokens";

class FaultsTest : public testing::TestWithParam<const char*> {};

TEST_P(FaultsTest, TheOthersStayAndTheNextRequestSucceeds) {
  const std::string victim = GetParam();
  // The portable kernels are slow enough for an answer to be caught in the middle.
  auto started = MiniCluster::Start("compute { isa: \"scalar\" threads: 1 }");
  ASSERT_TRUE(started.ok()) << started.status();
  MiniCluster& cluster = **started;
  std::vector<std::pair<std::string, pid_t>> others;
  for (const char* name : {"gateway", "compute", "expertstore", "kvstore"}) {
    if (name != victim) others.emplace_back(name, cluster.Pid(name));
  }
  const auto undisturbed = cluster.Chat(kQuestion, kTokens, nullptr, 0.7, /*ignore_end=*/true);
  ASSERT_TRUE(undisturbed.ok() && undisturbed->status == 200) << undisturbed.status();

  const pid_t before = cluster.Pid(victim);
  bool killed = false;
  const auto interrupted = cluster.Chat(
      kQuestion, kTokens,
      [&](const MiniCluster::Answer& so_far) {
        if (!killed && so_far.events >= 3) {
          killed = true;
          EXPECT_TRUE(cluster.Kill(victim).ok());
        }
        return true;
      },
      0.7, /*ignore_end=*/true);
  ASSERT_TRUE(killed) << "the answer was over before the kill";
  if (victim == "gateway" && !interrupted.ok()) {
    // The connection dropped, as it must, unless the rest of the answer had left before the kill.
  } else {
    ASSERT_TRUE(interrupted.ok()) << interrupted.status() << cluster.Log();
    EXPECT_EQ(interrupted->error, "") << cluster.Log();
    EXPECT_EQ(interrupted->text, undisturbed->text)
        << "the stream goes on as if nothing had happened\n"
        << cluster.Log();
    EXPECT_EQ(interrupted->finish_reason, undisturbed->finish_reason);
  }
  ASSERT_TRUE(cluster.AwaitHealthy().ok()) << cluster.Log();
  const auto next = cluster.Chat(kQuestion, kTokens, nullptr, 0.7, /*ignore_end=*/true);
  ASSERT_TRUE(next.ok() && next->status == 200) << next.status() << cluster.Log();
  EXPECT_EQ(next->text, undisturbed->text);
  for (const auto& [name, pid] : others) EXPECT_EQ(cluster.Pid(name), pid) << name << " died too";
  EXPECT_NE(cluster.Pid(victim), before);
}

// An answer behind moved text goes on from its own blocks, not from another splice.
TEST(Faults, ASplicedAnswerGoesOnWhenComputeDied) {
  auto started = MiniCluster::Start("compute { isa: \"scalar\" threads: 1 }");
  ASSERT_TRUE(started.ok()) << started.status();
  MiniCluster& cluster = **started;
  const auto number = [](const MiniCluster::Answer& answer, const char* name) {
    boost::system::error_code error;
    const auto* value = answer.usage.find_pointer(name, error);
    return value == nullptr ? -1 : value->to_number<int>();
  };
  const auto ask = [&](const std::string& date, std::string_view splice, int tokens,
                       const std::function<bool(const MiniCluster::Answer&)>& on_text = nullptr) {
    std::string text = "Today is " + date + ".\n";
    for (int i = 0; i < 32; ++i) {
      text += "Rule " + std::to_string(i) + ": a cynic and a lawyer are never asked.\n";
    }
    return cluster.Chat(text + kQuestion, tokens, on_text, 0.7, /*ignore_end=*/true, splice);
  };
  // Both prompts are read and stored first: what is compared starts from the same blocks.
  int blocks = 0;
  using Prompt = std::pair<const char*, const char*>;
  for (const auto& [date, splice] : {Prompt("Monday", "off"), Prompt(kOtherDate, "safe")}) {
    const auto read = ask(date, splice, 1);
    ASSERT_TRUE(read.ok() && read->status == 200) << read.status() << cluster.Log();
    blocks += number(*read, "/prompt_tokens") / 64;
    ASSERT_TRUE(Eventually([&] { return cluster.StoredBlocks() >= blocks; }, kPause));
  }
  const auto undisturbed = ask(kOtherDate, "safe", kTokens);
  ASSERT_TRUE(undisturbed.ok() && undisturbed->status == 200) << undisturbed.status();
  EXPECT_GT(number(*undisturbed, kSpliced), 200);
  bool killed = false;
  const auto interrupted = ask(kOtherDate, "safe", kTokens, [&](const MiniCluster::Answer& so_far) {
    if (!killed && so_far.events >= kTokens / 3) {
      killed = true;
      EXPECT_TRUE(cluster.Kill("compute").ok());
    }
    return true;
  });
  ASSERT_TRUE(killed) << "the answer was over before the kill";
  ASSERT_TRUE(interrupted.ok() && interrupted->error.empty()) << cluster.Log();
  EXPECT_GT(number(*interrupted, kSpliced), 200);
  EXPECT_EQ(interrupted->text, undisturbed->text) << cluster.Log();
}

INSTANTIATE_TEST_SUITE_P(Victims, FaultsTest,
                         testing::Values("gateway", "compute", "expertstore", "kvstore"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace strata::integration
