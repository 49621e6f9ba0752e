// Experts by other ways than all of them in memory: the answer stays the same, character by
// character.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "common/base/test_folder.h"
#include "tests/integration/mini_cluster.h"

namespace strata::integration {
namespace {

constexpr char kQuestion[] = "What does a CYNIC think of a LAWYER?";
constexpr int kTokens = 60;
// Room for a quarter of the demo model's 96 experts; every prompt token by the router's choice.
constexpr char kQuarter[] =
    "expertstore { arena_bytes: 3538944 } compute { prompt_routing: \"full\" } ";

std::string AnswerWith(const std::string& settings, std::string* log = nullptr) {
  auto cluster = MiniCluster::Start(settings);
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  if (!cluster.ok()) return "";
  const auto answer = (*cluster)->Chat(kQuestion, kTokens, nullptr, 0.7, /*ignore_end=*/true);
  EXPECT_TRUE(answer.ok() && answer->status == 200) << answer.status() << (*cluster)->Log();
  if (log != nullptr) *log = (*cluster)->Log();
  return answer.ok() ? answer->text : "";
}

const std::string& ResidentAnswer() {
  static const std::string answer = AnswerWith("compute { prompt_routing: \"full\" }");
  return answer;
}

// Interleaved once when all fit, which is the default, or after every read, or not at all.
TEST(LayoutOfExperts, ChangesNoAnswer) {
  ASSERT_FALSE(ResidentAnswer().empty());
  EXPECT_EQ(AnswerWith("compute { prompt_routing: \"full\" } expertstore { layout: \"gguf\" }"),
            ResidentAnswer());
  EXPECT_EQ(AnswerWith(std::string(kQuarter) + "expertstore { layout: \"rows8\" }"),
            ResidentAnswer());
}

// By the layout of the weights in the pack: the kernels of all layouts give the same bits.
class PackedExperts : public testing::TestWithParam<std::string> {
 protected:
  PackedExperts() {
    const std::string command = std::string(STRATA_BINARY) + " pack " + STRATA_DEMO_MODEL + " " +
                                pack_ + " --layout=" + GetParam() + " 2>/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
  std::string Settings() const {
    return std::string(kQuarter) + "expertstore { pack: \"" + pack_ + "\" }";
  }

  const TestFolder folder_;
  const std::string pack_ = folder_ / "experts.pack";
};

INSTANTIATE_TEST_SUITE_P(Layout, PackedExperts, testing::Values("gguf", "rows8"),
                         [](const auto& layout) { return layout.param; });

TEST_P(PackedExperts, GiveTheSameAnswer) {
  ASSERT_FALSE(ResidentAnswer().empty());
  EXPECT_EQ(AnswerWith(kQuarter), ResidentAnswer());
  std::string log;
  EXPECT_EQ(AnswerWith(Settings(), &log), ResidentAnswer());
  EXPECT_NE(log.find("reads: packs"), std::string::npos) << log;
}

// A device's kernels read rows as in the model: they are put apart when they are copied there.
TEST_P(PackedExperts, GiveTheSameAnswerFromADevice) {
  constexpr char kDevice[] =
      " compute { device_tier { device: \"simulated\" bytes: 4000000 copy_gbs: 12 } }";
  EXPECT_EQ(AnswerWith(Settings() + kDevice), ResidentAnswer());
}

TEST_P(PackedExperts, DamagedOnesAreReplacedByTheModels) {
  {
    // Somewhere in every second expert.
    std::fstream file(pack_, std::ios::in | std::ios::out | std::ios::binary);
    for (int e = 0; e < 96; e += 2) {
      file.seekp(4096 + e * 135168 + 70000);
      file.put(static_cast<char>(e));
    }
  }
  std::string log;
  EXPECT_EQ(AnswerWith(Settings(), &log), ResidentAnswer());
  EXPECT_NE(log.find("from the model's own file"), std::string::npos) << log;
}

TEST(ExpertMemory, IsGivenBackAndTakenAgainInTheMiddleOfAnAnswer) {
  const TestFolder runtime;
  const std::string command =
      std::string(STRATA_BINARY) + " memory --runtime_dir=" + runtime.path() + " --limit_gb=";
  {
    auto cluster =
        MiniCluster::Start(std::string(kQuarter) + "runtime_dir: \"" + runtime.path() + "\"");
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    int limits = 0;
    const auto answer = (*cluster)->Chat(
        kQuestion, kTokens,
        [&](const MiniCluster::Answer& so_far) {
          const bool shrink = so_far.events >= 3 && limits == 0;
          const bool grow = so_far.events >= 20 && limits == 1;
          if (shrink || grow) {
            ++limits;
            EXPECT_EQ(std::system((command + (shrink ? "0.001" : "0")).c_str()), 0);
          }
          return true;
        },
        0.7, /*ignore_end=*/true);
    ASSERT_TRUE(answer.ok() && answer->status == 200) << answer.status() << (*cluster)->Log();
    EXPECT_EQ(limits, 2);
    EXPECT_EQ(answer->text, ResidentAnswer());
    EXPECT_NE((*cluster)->Log().find("may take 1000000 bytes"), std::string::npos);
    // Too little for one token's experts is refused.
    EXPECT_NE(std::system((command + "0.00001 2>/dev/null").c_str()), 0);
  }
}

}  // namespace
}  // namespace strata::integration
