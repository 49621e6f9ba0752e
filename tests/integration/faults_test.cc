// Daemons that die in the middle of an answer.
#include <gtest/gtest.h>

#include "tests/integration/mini_cluster.h"

namespace strata::integration {
namespace {

constexpr char kQuestion[] = "Tell me what LAWYER means.";
constexpr int kTokens = 300;

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

INSTANTIATE_TEST_SUITE_P(Victims, FaultsTest,
                         testing::Values("gateway", "compute", "expertstore", "kvstore"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace strata::integration
