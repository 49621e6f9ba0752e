#include "cli/supervisor.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <string>

#include "cli/daemon_set.h"
#include "common/base/test_folder.h"

namespace strata::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

DaemonSpec Shell(const std::string& name, const std::string& script, int group = 0) {
  return {name, {"/bin/sh", "-c", script}, group};
}

class SupervisorTest : public testing::Test {
 protected:
  int Lines(const std::string& text) const {
    std::ifstream file(log_);
    int count = 0;
    for (std::string line; std::getline(file, line);) count += line == text;
    return count;
  }
  Supervisor::Options Until(std::function<bool()> finished) const {
    const auto give_up = steady_clock::now() + std::chrono::minutes(2);
    return {.ready = nullptr, .on_ready = nullptr, .finished = [=] {
              return finished() || steady_clock::now() > give_up;
            }};
  }
  const TestFolder folder_;
  const std::string log_ = folder_.Save("log", "");
};

TEST_F(SupervisorTest, RestartsAChildThatDies) {
  Supervisor supervisor({Shell("dies", "echo start >> " + log_ + "; kill -9 $$")});
  EXPECT_TRUE(supervisor.Run(Until([&] { return Lines("start") >= 3; })).ok());
  EXPECT_GE(Lines("start"), 3);
}

TEST_F(SupervisorTest, GivesUpOnAChildThatNeverLives) {
  Supervisor supervisor({Shell("hopeless", "exit 1"), Shell("good", "exec sleep 100")});
  const absl::Status status = supervisor.Run({});
  EXPECT_NE(status.message().find("hopeless ended with exit code 1"), absl::string_view::npos)
      << status;
}

TEST_F(SupervisorTest, WrongConfigurationIsNotRetried) {
  Supervisor supervisor({Shell("typo", "echo start >> " + log_ + "; exit 2")});
  EXPECT_EQ(supervisor.Run({}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Lines("start"), 1);
}

TEST_F(SupervisorTest, StopsGroupsInOrder) {
  const auto daemon = [&](const std::string& name, int group) {
    return Shell(name,
                 "trap 'echo " + name + " >> " + log_ + "; exit 0' TERM; echo up >> " + log_ +
                     "; while :; do sleep 0.05; done",
                 group);
  };
  Supervisor supervisor({daemon("store", 2), daemon("front", 0), daemon("middle", 1)});
  EXPECT_TRUE(supervisor.Run(Until([&] { return Lines("up") == 3; })).ok());
  std::ifstream file(log_);
  std::vector<std::string> order;
  for (std::string line; std::getline(file, line);) {
    if (line != "up") order.push_back(line);
  }
  EXPECT_EQ(order, (std::vector<std::string>{"front", "middle", "store"}));
}

TEST_F(SupervisorTest, ReadyIsReportedOnce) {
  int reports = 0;
  bool asked = false;
  Supervisor supervisor({Shell("good", "exec sleep 100")});
  Supervisor::Options options = Until([&] { return reports > 0; });
  options.ready = [&] { return std::exchange(asked, true); };  // true from the second question on
  options.on_ready = [&] { ++reports; };
  EXPECT_TRUE(supervisor.Run(options).ok());
  EXPECT_EQ(reports, 1);
}

TEST(FindModel, ListsWhatWasTried) {
  unsetenv("STRATA_MODEL");
  const auto named = FindModel("/nonexistent/model.gguf");
  EXPECT_EQ(named.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(named.status().message().find("/nonexistent/model.gguf (No such file"),
            absl::string_view::npos)
      << named.status();
}

TEST(RuntimeFolder, DisappearsWithItsContents) {
  std::string path;
  {
    auto folder = RuntimeFolder::Create();
    ASSERT_TRUE(folder.ok()) << folder.status();
    path = folder->path();
    std::ofstream(path + "/compute.sock") << "left over";
  }
  EXPECT_FALSE(std::ifstream(path + "/compute.sock").good());
}

}  // namespace
}  // namespace strata::cli
