// Answers through all four daemons.
#include <gtest/gtest.h>

#include <thread>

#include "common/base/eventually.h"
#include "common/base/test_folder.h"
#include "tests/integration/mini_cluster.h"

namespace strata::integration {
namespace {

int Number(const boost::json::value& usage, const char* pointer) {
  boost::system::error_code error;
  const boost::json::value* value = usage.find_pointer(pointer, error);
  return value != nullptr && value->is_number() ? value->to_number<int>() : -1;
}

constexpr char kCached[] = "/prompt_tokens_details/cached_tokens";
constexpr std::chrono::milliseconds kPause{50};  // between two questions of Eventually

// Longer than two blocks of 64 tokens, so that state is saved and found again.
std::string LongQuestion() {
  std::string text = "Please consider the following list of words before you answer.";
  for (int i = 0; i < 40; ++i)
    text += " A cynic, a lawyer, patience and politics: item " + std::to_string(i) + ".";
  return text + " What is a CYNIC?";
}

TEST(Answers, StreamIsCompleteAndCounted) {
  auto cluster = MiniCluster::Start();
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto answer = (*cluster)->Chat("What is a CYNIC?", 40);
  ASSERT_TRUE(answer.ok()) << answer.status() << (*cluster)->Log();
  EXPECT_EQ(answer->status, 200) << answer->error;
  EXPECT_FALSE(answer->text.empty());
  EXPECT_TRUE(answer->finish_reason == "stop" || answer->finish_reason == "length");
  EXPECT_GT(Number(answer->usage, "/prompt_tokens"), 5);
  EXPECT_GT(Number(answer->usage, "/completion_tokens"), 0);
  EXPECT_LE(Number(answer->usage, "/completion_tokens"), 40);

  const auto models = (*cluster)->GetJson("/v1/models");
  ASSERT_TRUE(models.ok()) << models.status();
  boost::system::error_code error;
  EXPECT_NE(models->find_pointer("/data/0/id", error), nullptr);
}

// A prompt is read once: the second time its state comes from kvstore, also after everything was
// stopped and started again, and the answer is the same.
TEST(Answers, StateIsReusedAcrossRequestsAndRestarts) {
  const TestFolder folder;
  const std::string state = folder / "state";
  std::string first_text;
  {
    auto cluster = MiniCluster::Start("", state);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    const auto first = (*cluster)->Chat(LongQuestion(), 30);
    ASSERT_TRUE(first.ok() && first->status == 200) << first.status() << (*cluster)->Log();
    EXPECT_EQ(Number(first->usage, kCached), 0);
    first_text = first->text;
    // Saving is asynchronous: ask until the blocks are there.
    EXPECT_TRUE(Eventually(
        [&] {
          const auto again = (*cluster)->Chat(LongQuestion(), 30);
          EXPECT_TRUE(again.ok() && again->status == 200) << again.status();
          EXPECT_EQ(again->text, first_text);
          return Number(again->usage, kCached) >= 128;
        },
        kPause));
    EXPECT_TRUE(Eventually([&] { return (*cluster)->StoredBlocks() >= 2; }, kPause));
  }
  auto cluster = MiniCluster::Start("", state);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto restarted = (*cluster)->Chat(LongQuestion(), 30);
  ASSERT_TRUE(restarted.ok() && restarted->status == 200) << restarted.status();
  EXPECT_EQ(restarted->text, first_text);
  EXPECT_GE(Number(restarted->usage, kCached), 128);
}

// A prompt whose beginning changed reuses the unchanged lines behind it when it may, and what comes
// of that never reaches a request that may not.
TEST(Answers, UnchangedLinesAreMovedForWhoAllowsIt) {
  const auto prompt = [](const std::string& date) {
    std::string text = "Today is " + date + ".\n";
    for (int i = 0; i < 30; ++i) {
      text += "Rule " + std::to_string(i) + ": a cynic and a lawyer are never asked.\n";
    }
    return text + "What is a CYNIC?";
  };
  const std::string monday = prompt("Monday");
  const std::string tuesday = prompt("the second day of a week that began on Monday");
  const char* spliced_tokens = "/prompt_tokens_details/spliced_tokens";
  std::string expected;
  {
    auto other = MiniCluster::Start();
    ASSERT_TRUE(other.ok()) << other.status();
    const auto answer = (*other)->Chat(tuesday, 30);
    ASSERT_TRUE(answer.ok() && answer->status == 200) << answer.status();
    expected = answer->text;
  }
  auto cluster = MiniCluster::Start();
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  // Saved when all whole blocks are found, in kvstore and not only in compute's memory.
  const auto read = (*cluster)->Chat(monday, 1);
  ASSERT_TRUE(read.ok() && read->status == 200) << read.status();
  const int blocks = Number(read->usage, "/prompt_tokens") / 64;
  ASSERT_GT(blocks, 4);
  ASSERT_TRUE(Eventually([&] { return (*cluster)->StoredBlocks() >= blocks; }, kPause));
  const auto fast = (*cluster)->Chat(tuesday, 30, nullptr, 0, false, "fast");
  ASSERT_TRUE(fast.ok() && fast->status == 200) << fast.status() << (*cluster)->Log();
  EXPECT_GT(Number(fast->usage, spliced_tokens), 250);
  EXPECT_EQ(Number(fast->usage, spliced_tokens), Number(fast->usage, kCached));
  const auto safe = (*cluster)->Chat(tuesday, 30, nullptr, 0, false, "safe");
  ASSERT_TRUE(safe.ok() && safe->status == 200) << safe.status();
  EXPECT_GT(Number(safe->usage, spliced_tokens), 200);
  EXPECT_LT(Number(safe->usage, spliced_tokens), Number(fast->usage, spliced_tokens));
  const auto configured = (*cluster)->Chat(tuesday, 30, nullptr, 0, false, "as configured");
  ASSERT_TRUE(configured.ok() && configured->status == 200) << configured.status();
  EXPECT_EQ(configured->text, safe->text) << "safe is the default";
  EXPECT_GT(Number(configured->usage, spliced_tokens), 200);
  const auto off = (*cluster)->Chat(tuesday, 30);
  ASSERT_TRUE(off.ok() && off->status == 200) << off.status();
  EXPECT_EQ(off->text, expected);
  EXPECT_EQ(Number(off->usage, spliced_tokens), -1) << "not even mentioned";
}

// Where experts lie must not change a token: an arena with room for a quarter of them, another
// chunk size, and no arena at all. (By default a prompt on such an arena uses what is in memory.)
TEST(Answers, TiersAndChunksDoNotChangeTheAnswer) {
  std::string expected;
  for (const char* settings :
       {"", "expertstore { arena_bytes: 5000000 } compute { prompt_routing: \"full\" }",
        "compute { chunk_tokens: 7 }", "compute { expertstore: \"none\" kvstore: \"none\" }"}) {
    auto cluster = MiniCluster::Start(settings);
    ASSERT_TRUE(cluster.ok()) << settings << cluster.status();
    const auto answer = (*cluster)->Chat(LongQuestion(), 60);
    ASSERT_TRUE(answer.ok() && answer->status == 200)
        << settings << answer.status() << (*cluster)->Log();
    if (expected.empty()) expected = answer->text;
    EXPECT_EQ(answer->text, expected) << settings;
  }
  EXPECT_FALSE(expected.empty());
}

TEST(Answers, ManyClientsGetTheirOwnAnswers) {
  auto cluster = MiniCluster::Start();
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::vector<std::string> questions = {"What is a CYNIC?", "patience?", "Define politics",
                                              "Tell me what LAWYER means."};
  std::vector<std::string> alone;
  for (const std::string& q : questions) alone.push_back((*cluster)->Chat(q, 30)->text);
  std::vector<std::string> together(12);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < together.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto answer = (*cluster)->Chat(questions[i % questions.size()], 30);
      if (answer.ok()) together[i] = answer->text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < together.size(); ++i) EXPECT_EQ(together[i], alone[i % alone.size()]) << i;
}

TEST(Answers, AClosedConnectionFreesTheEngine) {
  auto cluster = MiniCluster::Start();
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  for (int i = 0; i < 10; ++i) {
    const auto answer = (*cluster)->Chat("What is a CYNIC?", 900, [](const auto& so_far) {
      return so_far.events < 3;  // then hang up
    });
    ASSERT_TRUE(answer.ok()) << answer.status();
  }
  // All eight places would be taken for long if one of these still ran.
  const auto answer = (*cluster)->Chat("patience?", 20);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 200) << answer->error;
}

TEST(Answers, TooLongPromptIsRefusedWithBothNumbers) {
  auto cluster = MiniCluster::Start("compute { context_length: 256 }");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto answer = (*cluster)->Chat(LongQuestion(), 10);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 400);
  EXPECT_NE(answer->error.find("256"), std::string::npos) << answer->error;
}

}  // namespace
}  // namespace strata::integration
