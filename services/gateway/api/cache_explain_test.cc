#include "services/gateway/api/cache_explain.h"

#include <gtest/gtest.h>

#include "services/gateway/testing/gateway_fixture.h"

namespace strata::gateway {
namespace {

using testing::FakeEngine;
using testing::Gateway;
using testing::Json;
using testing::RawResponse;
using testing::TinyModel;

// What kvstore says of a prompt of which `same` bytes are stored, going on with `stored`.
v1::PlanResponse Plan(uint32_t reused, uint32_t same, std::string_view stored) {
  v1::PlanResponse plan;
  plan.mutable_plan()->set_reused_tokens(reused);
  plan.set_first_different_token(same);
  plan.set_conversation(std::string(16, '\x2a'));
  const auto ids = TinyModel::Bytes(stored);
  plan.mutable_stored_instead()->mutable_ids()->Assign(ids.begin(), ids.end());
  return plan;
}

boost::json::object Explain(std::string_view prompt, const v1::PlanResponse& plan) {
  return ExplanationJson(TinyModel(), TinyModel::Bytes(prompt), plan);
}

TEST(CacheExplain, NamesTheLineThatDiffers) {
  const std::string prompt = "You are\nan agent.\nDate: 30 November\nGo on\n";
  const auto same = static_cast<uint32_t>(prompt.find("30"));
  v1::PlanResponse plan = Plan(20, same, "29 November\nGo on");
  v1::MovedRun& run = *plan.mutable_plan()->add_runs();
  run.set_first_token(same + 12);
  run.set_tokens(5);
  run.set_old_first_token(7);
  const boost::json::object out = Explain(prompt, plan);
  EXPECT_EQ(out.at("summary"), "diverged at token 24, line 3: `Date: 30 November`");
  EXPECT_EQ(out.at("reused_tokens"), 20);
  EXPECT_EQ(out.at("moved_tokens"), 5);
  EXPECT_EQ(out.at("read_tokens"), prompt.size() - 25);
  EXPECT_EQ(out.at("conversation"), "2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a");
  const auto& diverged = out.at("diverged").as_object();
  EXPECT_EQ(diverged.at("line"), 3);
  EXPECT_EQ(diverged.at("token"), 24);
  EXPECT_EQ(diverged.at("stored"), "Date: 29 November");
  EXPECT_EQ(out.at("runs").as_array().at(0).at("old_first_token"), 7);
}

TEST(CacheExplain, SaysWhatElseThereIsToSay) {
  EXPECT_EQ(Explain("abc", {}).at("summary"), "nothing like this prompt is stored");
  EXPECT_TRUE(Explain("abc", {}).at("diverged").is_null());
  EXPECT_EQ(Explain("ab\ncd", Plan(4, 4, "")).at("summary"),
            "the stored conversation ends at token 4, line 2");
  EXPECT_EQ(Explain("abc", Plan(0, 3, "x")).at("summary"), "all of the prompt is stored");
}

TEST(CacheExplain, SurvivesWhateverKvstoreSays) {
  v1::PlanResponse plan = Plan(1000, 2000, "x");
  plan.mutable_plan()->add_runs()->set_tokens(4'000'000'000);
  plan.mutable_stored_instead()->add_ids(4'000'000'000);
  EXPECT_EQ(Explain("abc", plan).at("read_tokens"), 0);
  plan.set_first_different_token(1);
  plan.mutable_stored_instead()->mutable_ids()->Clear();
  plan.mutable_stored_instead()->add_ids(4'000'000'000);
  EXPECT_EQ(Explain("abc", plan).at("diverged").at("text"), "abc");
  EXPECT_EQ(Explain(std::string(1000, '\xff'), plan).at("diverged").at("text").as_string().size(),
            203u * 3 - 6);
}

TEST(CacheExplain, AsksForAPromptAsThingsAre) {
  Gateway gateway([](const v1::GenerateRequest&) { return FakeEngine::Script{}; }, {});
  EXPECT_EQ(gateway.Post("/v1/cache/explain", R"({"prompt":"ab"})").status, 503);
  gateway.engine().set_explanation(Plan(0, 1, "zz"));
  RawResponse response = gateway.Post("/v1/cache/explain", R"({"prompt":"ab","splice":"fast"})");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(Json(response.body).at("summary"), "diverged at token 1, line 1: `<|bos|>ab`");
  EXPECT_EQ(gateway.engine().last_explained().tokens().ids_size(), 3) << "with its bos";
  EXPECT_EQ(gateway.engine().last_explained().splice(), v1::SPLICE_FAST);
  response = gateway.Post("/v1/cache/explain", R"({"messages":[{"role":"user","content":"ab"}]})");
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_TRUE(gateway.engine().requests().empty()) << "nothing was generated";
  EXPECT_EQ(gateway.Post("/v1/cache/explain", R"({"messages":7})").status, 400);
  EXPECT_EQ(gateway.Post("/v1/cache/explain", "no json").status, 400);
}

TEST(CacheExplain, TellsOfRecentAnswers) {
  Gateway gateway(
      [](const v1::GenerateRequest&) {
        FakeEngine::Script script;
        script.tokens = TinyModel::Bytes("x");
        script.plan = Plan(0, 1, "zz");
        return script;
      },
      {});
  RawResponse response = gateway.Post("/v1/completions", R"({"prompt":"ab"})");
  ASSERT_EQ(response.status, 200) << response.body;
  const boost::json::value answer = Json(response.body);
  const auto& cache = answer.at("usage").at("prompt_tokens_details").at("cache");
  EXPECT_EQ(cache.at("first_different_token"), 1);
  const std::string id = response.headers["x-request-id"];
  ASSERT_FALSE(id.empty());
  response = gateway.Get("/v1/cache/explain/" + id);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(Json(response.body).at("diverged").at("stored"), "<|bos|>zz");
  EXPECT_EQ(gateway.Get("/v1/cache/explain/nobody").status, 404);
}

TEST(CacheExplain, KeepsTheLastAndKeepsTenantsApart) {
  RecentPlans recent;
  for (size_t i = 0; i < RecentPlans::kKept + 1; ++i) {
    recent.Add({std::to_string(i), i % 2 == 0 ? "a" : "b", nullptr, {}});
  }
  EXPECT_EQ(recent.Find("0", "a"), nullptr) << "forgotten";
  EXPECT_NE(recent.Find("2", "a"), nullptr);
  EXPECT_EQ(recent.Find("2", "b"), nullptr);
}

}  // namespace
}  // namespace strata::gateway
