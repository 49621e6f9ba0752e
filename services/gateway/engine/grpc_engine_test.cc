#include "services/gateway/engine/grpc_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "common/base/eventually.h"
#include "common/base/test_folder.h"
#include "common/rpc/server.h"
#include "common/state/block_id.h"
#include "services/gateway/engine/generation.h"
#include "services/gateway/testing/fake_compute.h"

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;
using testing::FakeCompute;
using testing::FakeEngine;
using testing::FakeKvStore;

class GrpcEngineTest : public ::testing::Test {
 protected:
  GrpcEngineTest() {
    description_.mutable_fingerprint()->set_hash("0123456789abcdef");
    description_.mutable_fingerprint()->set_name("Fake");
    description_.mutable_state_layout()->set_hash("layout");
    description_.set_context_length(100);
    description_.set_max_sequences(2);
  }

  std::string ComputeAddress() const { return "unix:" + folder_ / "compute"; }
  std::string KvAddress() const { return "unix:" + folder_ / "kvstore"; }

  void StartCompute(FakeEngine::Writer writer) {
    compute_server_.reset();
    compute_ = std::make_unique<FakeCompute>(description_, std::move(writer));
    grpc::Service* services[] = {compute_.get()};
    auto server = rpc::Server::Start(ComputeAddress(), {}, services);
    ASSERT_TRUE(server.ok()) << server.status();
    compute_server_ = *std::move(server);
  }
  // As if it had been killed: running calls break off.
  void KillCompute() {
    compute_server_->Shutdown(milliseconds(0));
    compute_server_.reset();
  }
  void StartKvStore() {
    grpc::Service* services[] = {&kvstore_};
    kvstore_server_ = *rpc::Server::Start(KvAddress(), {}, services);
  }
  void Connect(std::string expected_fingerprint = "") {
    GrpcEngineOptions options;
    options.compute = ComputeAddress();
    options.kvstore = KvAddress();
    options.watch_interval = milliseconds(50);
    options.kvstore_patience = patience_;
    options.plan_timeout = plan_timeout_;
    options.expected_fingerprint = std::move(expected_fingerprint);
    auto engine = ConnectGrpcEngine(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }
  bool WaitState(EngineState state) {
    return Eventually([&] { return engine_->state() == state; });
  }

  struct Result {
    std::vector<uint32_t> tokens;
    std::optional<v1::Finish> finish;
    absl::Status error;
  };
  Result Generate(v1::PromptRouting routing = v1::PROMPT_ROUTING_UNSPECIFIED,
                  int prompt_tokens = 8) {
    v1::GenerateRequest request;
    request.set_prompt_routing(routing);
    request.set_request_id("req-7");
    for (int i = 0; i < prompt_tokens; ++i) request.mutable_prompt()->add_ids(i);
    request.set_splice(v1::SPLICE_SAFE);
    request.add_line_starts(3);
    Generation generation(engine_.get(), request, "tenant-a", {}, [] {});
    Result result;
    Eventually([&] {
      Generation::Update update = generation.Poll(Generation::Clock::now());
      for (const auto& token : update.tokens) result.tokens.push_back(token.id());
      received_ = result.tokens.size();
      result.finish = update.finish;
      result.error = update.error;
      return result.finish || !result.error.ok();
    });
    return result;
  }

  milliseconds patience_{50};
  milliseconds plan_timeout_{120000};  // no test but one is about lateness
  const TestFolder folder_;
  v1::DescribeResponse description_;
  std::unique_ptr<FakeCompute> compute_;
  FakeKvStore kvstore_;
  std::unique_ptr<rpc::Server> compute_server_;
  std::unique_ptr<rpc::Server> kvstore_server_;
  std::unique_ptr<Engine> engine_;
  std::atomic<size_t> received_{0};  // tokens of Generate so far
};

TEST_F(GrpcEngineTest, ComputeMayComeLater) {
  Connect();
  EXPECT_EQ(engine_->state(), EngineState::kStarting);
  EXPECT_EQ(engine_->description(), nullptr);
  StartCompute([](const v1::GenerateRequest&) { return FakeEngine::Script{{1, 2, 3}}; });
  ASSERT_TRUE(WaitState(EngineState::kReady));
  EXPECT_EQ(engine_->description()->context_length(), 100);
  const Result result = Generate();
  EXPECT_EQ(result.tokens, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_TRUE(result.finish);
}

// The first prompt after a start finds its state, whichever daemon was faster.
TEST_F(GrpcEngineTest, ReadyMeansThatKvStoreWasAsked) {
  patience_ = milliseconds(60000);
  StartCompute([](const v1::GenerateRequest&) { return FakeEngine::Script{{1}}; });
  Connect();
  ASSERT_TRUE(Eventually([&] { return engine_->reason().find("kvstore") != std::string::npos; }));
  EXPECT_EQ(engine_->state(), EngineState::kStarting);
  StartKvStore();
  ASSERT_TRUE(WaitState(EngineState::kReady));
  const Result result = Generate();
  ASSERT_TRUE(result.finish) << result.error;
  EXPECT_EQ(result.finish->usage().cached_tokens(), 4);
}

TEST_F(GrpcEngineTest, PlanAndTenantReachCompute) {
  StartKvStore();
  StartCompute([](const v1::GenerateRequest&) { return FakeEngine::Script{{1}}; });
  Connect();
  ASSERT_TRUE(WaitState(EngineState::kReady));
  ASSERT_TRUE(Eventually([&] { return engine_->status().has_kvstore; }));
  EXPECT_EQ(engine_->status().kvstore.blocks(), 11);
  const Result result = Generate();
  ASSERT_TRUE(result.finish) << result.error;
  EXPECT_EQ(result.finish->usage().cached_tokens(), 4);
  const v1::GenerateRequest request = compute_->requests()[0];
  EXPECT_EQ(request.restore().key().tenant(), "tenant-a");
  EXPECT_EQ(request.restore().key().fingerprint().hash(), "0123456789abcdef");
  EXPECT_EQ(request.restore().key().layout().hash(), "layout");
  const v1::PlanRequest plan = kvstore_.last_plan();
  EXPECT_EQ(plan.splice(), v1::SPLICE_SAFE);
  ASSERT_EQ(plan.line_starts_size(), 1);
  EXPECT_EQ(plan.line_starts(0), 3u);
  EXPECT_EQ(request.line_starts_size(), 0) << "compute has no use for them";
}

// State of a prompt that is read with other experts than the router's must not serve exact
// requests.
TEST_F(GrpcEngineTest, ExplainingOnlyAsks) {
  StartKvStore();
  StartCompute([](const v1::GenerateRequest&) { return FakeEngine::Script{}; });
  Connect();
  ASSERT_TRUE(Eventually([&] { return engine_->status().has_kvstore; }));
  ASSERT_TRUE(WaitState(EngineState::kReady));
  v1::PlanRequest request;
  for (uint32_t i = 0; i < 10; ++i) request.mutable_tokens()->add_ids(i);
  const auto plan = engine_->Explain(request, "alice");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->plan().reused_tokens(), 5u);
  EXPECT_TRUE(kvstore_.last_plan().dry_run());
  EXPECT_EQ(kvstore_.last_plan().key().tenant(), "alice");
  EXPECT_EQ(kvstore_.last_plan().key().fingerprint().hash(),
            engine_->description()->fingerprint().hash());
}

TEST_F(GrpcEngineTest, ApproximateStateHasATenantOfItsOwn) {
  StartKvStore();
  StartCompute([](const v1::GenerateRequest&) { return FakeEngine::Script{{1}}; });
  Connect();
  ASSERT_TRUE(WaitState(EngineState::kReady));
  ASSERT_TRUE(Eventually([&] { return engine_->status().has_kvstore; }));
  ASSERT_TRUE(Generate(v1::FULL).finish);
  ASSERT_TRUE(Generate(v1::GUARDED).finish);
  const auto requests = compute_->requests();
  EXPECT_EQ(requests[0].restore().key().tenant(), "tenant-a");
  EXPECT_TRUE(state::IsApproximate(requests[1].restore().key().tenant()));
  EXPECT_EQ(requests[1].restore().key().tenant(), state::ApproximateTenant("tenant-a"));
  EXPECT_EQ(requests[1].prompt_routing(), v1::GUARDED);
}

TEST_F(GrpcEngineTest, ASlowOrFailingPlanCostsNothing) {
  plan_timeout_ = milliseconds(200);
  StartKvStore();
  StartCompute([](const v1::GenerateRequest&) { return FakeEngine::Script{{1}}; });
  Connect();
  ASSERT_TRUE(WaitState(EngineState::kReady));
  ASSERT_TRUE(Eventually([&] { return engine_->status().has_kvstore; }));
  kvstore_.failure = grpc::Status(grpc::StatusCode::INTERNAL, "disk");
  EXPECT_TRUE(Generate().finish);
  kvstore_.failure = grpc::Status::OK;
  kvstore_.delay = milliseconds(60000);
  EXPECT_TRUE(Generate().finish);
  for (const auto& request : compute_->requests()) {
    EXPECT_EQ(request.restore().reused_tokens(), 0);
    EXPECT_EQ(request.restore().key().tenant(), "tenant-a");
  }
  kvstore_.delay = milliseconds(0);
}

TEST_F(GrpcEngineTest, WhatWasRememberedIsRecalled) {
  StartCompute([](const v1::GenerateRequest&) { return FakeEngine::Script{{1}}; });
  Connect();
  ASSERT_TRUE(WaitState(EngineState::kReady));
  engine_->Remember("name", "lost");
  EXPECT_TRUE(Eventually([&] { return absl::IsUnavailable(engine_->Recall("name").status()); }));
  StartKvStore();
  ASSERT_TRUE(Eventually([&] { return engine_->status().has_kvstore; }));
  // (an answer that is late counts as none)
  EXPECT_TRUE(Eventually([&] { return absl::IsNotFound(engine_->Recall("name").status()); }));
  engine_->Remember("name", "value");
  EXPECT_TRUE(Eventually([&] {
    const auto value = engine_->Recall("name");
    return value.ok() && *value == "value";
  }));
}

TEST_F(GrpcEngineTest, CancellingReachesCompute) {
  StartCompute([](const v1::GenerateRequest&) {
    FakeEngine::Script script;
    script.hangs = true;
    return script;
  });
  Connect();
  ASSERT_TRUE(WaitState(EngineState::kReady));
  {
    const Generation generation(engine_.get(), v1::GenerateRequest(), "", {}, [] {});
    ASSERT_TRUE(Eventually([&] { return compute_->running() == 1; }));
  }
  EXPECT_TRUE(Eventually([&] { return compute_->running() == 0 && compute_->cancelled() == 1; }));
}

TEST_F(GrpcEngineTest, CancellingWhilePlanningStartsNothing) {
  StartKvStore();
  StartCompute([](const v1::GenerateRequest&) { return FakeEngine::Script{{1}}; });
  Connect();
  ASSERT_TRUE(WaitState(EngineState::kReady));
  ASSERT_TRUE(Eventually([&] { return engine_->status().has_kvstore; }));
  kvstore_.delay = milliseconds(60000);
  {
    const Generation generation(engine_.get(), v1::GenerateRequest(), "", {}, [] {});
  }
  engine_.reset();  // waits for the last callback
  EXPECT_TRUE(compute_->requests().empty());
}

TEST_F(GrpcEngineTest, AnswersGoOnAfterComputeWasKilled) {
  const std::vector<uint32_t> answer = {10, 11, 12, 13, 14, 15, 16, 17};
  StartCompute([&](const v1::GenerateRequest&) {
    FakeEngine::Script script;
    script.tokens.assign(answer.begin(), answer.begin() + 3);
    script.hangs = true;
    return script;
  });
  Connect();
  ASSERT_TRUE(WaitState(EngineState::kReady));
  Result result;
  std::thread client([&] { result = Generate(); });
  ASSERT_TRUE(Eventually([&] { return received_ == 3; }));
  KillCompute();
  StartCompute([&](const v1::GenerateRequest&) { return FakeEngine::Script{answer}; });
  client.join();
  EXPECT_EQ(result.tokens, answer);
  ASSERT_TRUE(result.finish) << result.error;
  EXPECT_EQ(compute_->requests()[0].resumed_tokens(), 3);
  EXPECT_EQ(compute_->requests()[0].prompt().ids_size(), 8 + 3);
  EXPECT_TRUE(WaitState(EngineState::kReady));
}

TEST_F(GrpcEngineTest, LossAndReturnAreNoticed) {
  StartCompute([](const v1::GenerateRequest&) { return FakeEngine::Script{{1}}; });
  Connect();
  ASSERT_TRUE(WaitState(EngineState::kReady));
  KillCompute();
  ASSERT_TRUE(WaitState(EngineState::kLost));
  EXPECT_THAT(engine_->reason(), ::testing::HasSubstr("restarted"));
  EXPECT_NE(engine_->description(), nullptr);
  StartCompute([](const v1::GenerateRequest&) { return FakeEngine::Script{{1}}; });
  EXPECT_TRUE(WaitState(EngineState::kReady));
}

TEST_F(GrpcEngineTest, AnotherModelIsRefused) {
  StartCompute([](const v1::GenerateRequest&) { return FakeEngine::Script{{1}}; });
  Connect("another hash 16b");
  EXPECT_TRUE(WaitState(EngineState::kWrong));
}

}  // namespace
}  // namespace strata::gateway
