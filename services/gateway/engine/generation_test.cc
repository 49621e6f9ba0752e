#include "services/gateway/engine/generation.h"

#include <gtest/gtest.h>

#include <atomic>

#include "common/base/eventually.h"
#include "services/gateway/testing/fake_engine.h"

namespace strata::gateway {
namespace {

using testing::FakeEngine;
using Clock = Generation::Clock;

struct Result {
  std::vector<uint32_t> tokens;
  std::optional<v1::Finish> finish;
  absl::Status error;
  uint32_t restarts = 0;
};

Generation::RetryPolicy Quick() {
  return {.max_attempts = 5,
          .first_delay = std::chrono::milliseconds(1),
          .max_delay = std::chrono::milliseconds(4),
          .max_deaths = 3};
}

Result RunToEnd(FakeEngine& engine) {
  v1::GenerateRequest request;
  request.mutable_prompt()->add_ids(1);
  request.mutable_prompt()->add_ids(2);
  request.mutable_sampling()->set_seed(77);
  request.set_splice(v1::SPLICE_SAFE);
  Generation generation(&engine, request, "tenant", Quick(), [] {});
  Result result;
  EXPECT_TRUE(Eventually([&] {
    Generation::Update update = generation.Poll(Clock::now());
    for (const auto& token : update.tokens) result.tokens.push_back(token.id());
    result.finish = update.finish;
    result.error = update.error;
    return result.finish || !result.error.ok();
  }));
  result.restarts = generation.restarts();
  return result;
}

TEST(Generation, PassesTokensAndFinishOn) {
  FakeEngine engine([](const v1::GenerateRequest&) { return FakeEngine::Script{{5, 6, 7}}; });
  const Result result = RunToEnd(engine);
  EXPECT_EQ(result.tokens, (std::vector<uint32_t>{5, 6, 7}));
  ASSERT_TRUE(result.finish);
  EXPECT_EQ(result.finish->reason(), v1::Finish::STOP_TOKEN);
  EXPECT_EQ(result.restarts, 0);
  EXPECT_EQ(engine.tenants()[0], "tenant");
}

TEST(Generation, StartsAgainBeforeTheFirstToken) {
  std::atomic<int> calls = 0;
  FakeEngine engine([&](const v1::GenerateRequest&) {
    FakeEngine::Script script;
    if (++calls < 3) {
      script.failure = absl::UnavailableError("socket closed");
    } else {
      script.tokens = {5, 6};
    }
    return script;
  });
  const Result result = RunToEnd(engine);
  EXPECT_EQ(result.tokens, (std::vector<uint32_t>{5, 6}));
  EXPECT_TRUE(result.finish);
}

TEST(Generation, GoesOnWhereItStopped) {
  const std::vector<uint32_t> answer = {10, 11, 12, 13, 14, 15};
  std::atomic<int> calls = 0;
  FakeEngine engine([&](const v1::GenerateRequest& request) {
    FakeEngine::Script script;
    script.tokens = answer;
    if (++calls < 3) {
      script.tokens.resize(request.resumed_tokens() + 2);
      script.failure = absl::UnavailableError("socket closed");
    }
    return script;
  });
  const Result result = RunToEnd(engine);
  EXPECT_EQ(result.tokens, answer);
  EXPECT_TRUE(result.finish);
  EXPECT_EQ(result.restarts, 2);
  const auto requests = engine.requests();
  ASSERT_EQ(requests.size(), 3);
  EXPECT_EQ(requests[2].resumed_tokens(), 4);
  EXPECT_EQ(requests[2].sampling().seed(), 77);
  const std::vector<uint32_t> prompt(requests[2].prompt().ids().begin(),
                                     requests[2].prompt().ids().end());
  EXPECT_EQ(prompt, (std::vector<uint32_t>{1, 2, 10, 11, 12, 13}));
}

// Whatever other clients stored meanwhile.
TEST(Generation, AnExactAnswerGoesOnExactlyAndASplicedOneFromItsOwnBlocks) {
  const auto mode_of_second_try = [](const v1::RestorePlan& first_plan) {
    std::atomic<int> calls = 0;
    FakeEngine engine([&](const v1::GenerateRequest&) {
      FakeEngine::Script script{{10, 11, 12}};
      script.plan.emplace();
      *script.plan->mutable_plan() = first_plan;
      if (++calls == 1) {
        script.tokens.resize(1);
        script.failure = absl::UnavailableError("socket closed");
      }
      return script;
    });
    EXPECT_EQ(RunToEnd(engine).tokens.size(), 3u);
    const auto requests = engine.requests();
    EXPECT_EQ(requests.size(), 2u);
    EXPECT_EQ(requests.front().splice(), v1::SPLICE_SAFE);
    return requests.back().splice();
  };
  v1::RestorePlan plan;
  EXPECT_EQ(mode_of_second_try(plan), v1::SPLICE_OFF);
  plan.add_blocks();
  EXPECT_EQ(mode_of_second_try(plan), v1::SPLICE_OFF);
  plan.mutable_blocks(0)->set_lineage(v1::LINEAGE_SAFE);
  EXPECT_EQ(mode_of_second_try(plan), v1::SPLICE_SAFE);
  plan.mutable_blocks()->Clear();
  plan.add_runs()->set_tokens(500);
  EXPECT_EQ(mode_of_second_try(plan), v1::SPLICE_SAFE);
}

TEST(Generation, DrainedComputeIsWaitedFor) {
  std::atomic<int> calls = 0;
  FakeEngine engine([&](const v1::GenerateRequest&) {
    FakeEngine::Script script{{1, 2, 3}};
    if (++calls == 1) {
      script.tokens.resize(1);
      script.finish = v1::Finish::DRAINED;
    }
    return script;
  });
  EXPECT_EQ(RunToEnd(engine).tokens, (std::vector<uint32_t>{1, 2, 3}));
}

TEST(Generation, GivesUpOnErrorsOfTheRequest) {
  FakeEngine engine([](const v1::GenerateRequest&) {
    FakeEngine::Script script;
    script.failure = absl::InvalidArgumentError("no such token");
    return script;
  });
  const Result result = RunToEnd(engine);
  EXPECT_EQ(result.error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine.requests().size(), 1);
}

TEST(Generation, ARequestThatKillsComputeIsNotRepeatedForever) {
  FakeEngine engine([](const v1::GenerateRequest& request) {
    FakeEngine::Script script;
    script.tokens.resize(request.resumed_tokens());
    script.failure = absl::UnavailableError("socket closed");
    return script;
  });
  const Result result = RunToEnd(engine);
  EXPECT_EQ(result.error.code(), absl::StatusCode::kUnavailable);
  EXPECT_LE(engine.requests().size(), 4);
}

TEST(Generation, DestroyingCancels) {
  FakeEngine engine([](const v1::GenerateRequest&) {
    FakeEngine::Script script;
    script.hangs = true;
    return script;
  });
  {
    const Generation generation(&engine, v1::GenerateRequest(), "", Quick(), [] {});
  }
  EXPECT_TRUE(Eventually([&] { return engine.running() == 0; }));
  EXPECT_EQ(engine.cancelled(), 1);
}

}  // namespace
}  // namespace strata::gateway
