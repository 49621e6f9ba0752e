// Many clients, slow ones, and those that leave: the queue and cancellation over real sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/base/eventually.h"
#include "services/gateway/testing/gateway_fixture.h"

namespace strata::gateway {
namespace {

using testing::Events;
using testing::FakeEngine;
using testing::Gateway;
using ::testing::HasSubstr;
using testing::RawClient;
using testing::RawResponse;
using testing::TinyModel;

constexpr char kWhole[] = R"({"messages":[{"role":"user","content":"hi"}]})";
constexpr char kStream[] = R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";
constexpr char kPath[] = "/v1/chat/completions";

// Generates until it is cancelled.
FakeEngine::Script Endless(const v1::GenerateRequest&) {
  FakeEngine::Script script;
  script.tokens = TinyModel::Bytes("abc");
  script.hangs = true;
  return script;
}

// The text of a stream, however it was cut into deltas.
std::string Content(const std::string& body) {
  std::string text;
  for (const std::string& event : Events(body)) {
    if (event == "[DONE]") continue;
    const auto chunk = testing::Json(event);
    const auto& delta = chunk.at("choices").as_array()[0].at("delta").as_object();
    if (const auto* content = delta.if_contains("content")) text += content->as_string().c_str();
  }
  return text;
}

TEST(Load, ClosingTheSocketStopsTheWork) {
  Gateway gateway(Endless, {});
  for (const char* body : {kStream, kWhole}) {
    RawClient client(gateway.port());
    client.SendRequest("POST", kPath, body);
    ASSERT_TRUE(Eventually([&] { return gateway.engine().running() == 1; }));
    client.Close();
    EXPECT_TRUE(gateway.WaitIdle()) << body;
  }
  EXPECT_EQ(gateway.engine().cancelled(), 2);
}

TEST(Load, FiftyDisconnectsLeaveNothingRunning) {
  Gateway::Options options;
  options.slots = 8;
  options.max_queue = 100;
  Gateway gateway(Endless, std::move(options));
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(std::make_unique<RawClient>(gateway.port()));
    clients.back()->SendRequest("POST", kPath, i % 2 == 0 ? kStream : kWhole);
  }
  ASSERT_TRUE(Eventually([&] { return gateway.engine().running() == 8; }));
  for (size_t i = 0; i < clients.size(); ++i) {
    if (i % 3 == 0) {
      clients[i]->Reset();
    } else {
      clients[i]->Close();
    }
  }
  EXPECT_TRUE(Eventually(
      [&] { return gateway.engine().running() == 0 && gateway.server().connections() == 0; }));
  EXPECT_THAT(gateway.Get("/metrics").body, HasSubstr("strata:requests_waiting 0"));
}

TEST(Load, LeavingTheQueueDoesNotTouchTheRunningRequest) {
  Gateway::Options options;
  options.slots = 1;
  std::atomic<bool> go_on = false;
  Gateway gateway(
      [&](const v1::GenerateRequest&) {
        FakeEngine::Script script;
        script.tokens = TinyModel::Bytes(std::string(40, 'x'));
        script.before_token = [&](size_t token) {
          while (token == 20 && !go_on) std::this_thread::yield();
        };
        return script;
      },
      std::move(options));
  const auto waiting = [&](const char* count) {
    return Eventually([&] {
      return gateway.Get("/metrics").body.find(std::string("strata:requests_waiting ") + count) !=
             std::string::npos;
    });
  };
  RawClient running(gateway.port());
  running.SendRequest("POST", kPath, kWhole);
  ASSERT_TRUE(Eventually([&] { return gateway.engine().running() == 1; }));
  {
    RawClient queued(gateway.port());
    queued.SendRequest("POST", kPath, kWhole);
    EXPECT_TRUE(waiting("1"));
  }
  EXPECT_TRUE(waiting("0"));
  go_on = true;
  EXPECT_THAT(running.Read().body, HasSubstr(std::string(40, 'x')));
  EXPECT_EQ(gateway.engine().requests().size(), 1);
  EXPECT_EQ(gateway.engine().cancelled(), 0);
}

TEST(Load, FullQueueAnswers429AtOnce) {
  Gateway::Options options;
  options.slots = 1;
  options.max_queue = 1;
  Gateway gateway(Endless, std::move(options));
  RawClient running(gateway.port());
  running.SendRequest("POST", kPath, kStream);
  ASSERT_TRUE(Eventually([&] { return gateway.engine().running() == 1; }));
  RawClient queued(gateway.port());
  queued.SendRequest("POST", kPath, kStream);
  // A queued stream gets its headers and role chunk at once.
  ASSERT_TRUE(queued.WaitFor("\"role\":\"assistant\""));
  const RawResponse refused = gateway.Post(kPath, kStream);
  EXPECT_EQ(refused.status, 429);
  EXPECT_GE(std::stoi(refused.headers.at("retry-after")), 1);
  EXPECT_THAT(refused.body, HasSubstr("\"type\":\"rate_limit_error\""));
  EXPECT_EQ(gateway.Get("/health").status, 200);
  running.Close();
  EXPECT_TRUE(queued.WaitFor("\"content\":\"a"));
}

TEST(Load, HeartbeatsTellThePlaceInTheQueueAndTheProgress) {
  Gateway::Options options;
  options.slots = 1;
  options.heartbeat = std::chrono::milliseconds(20);
  Gateway gateway(
      [](const v1::GenerateRequest&) {
        FakeEngine::Script script;
        script.hangs = true;
        return script;
      },
      std::move(options));
  RawClient running(gateway.port());
  running.SendRequest("POST", kPath, kStream);
  EXPECT_TRUE(running.WaitFor(": reading the prompt, 0 of 6 tokens\n\n"));
  RawClient queued(gateway.port());
  queued.SendRequest("POST", kPath, kStream);
  EXPECT_TRUE(queued.WaitFor(": waiting, position 1\n\n"));
  for (const std::string& event : Events(queued.Read(std::chrono::milliseconds(50)).body)) {
    EXPECT_EQ(event[0], '{');
  }
}

TEST(Load, ParallelAnswersAreNotMixed) {
  Gateway::Options options;
  options.slots = 4;
  options.max_queue = 64;
  Gateway gateway(
      [](const v1::GenerateRequest& request) {
        FakeEngine::Script script;
        for (const uint32_t id : request.prompt().ids()) {
          if (id < 256) script.tokens.push_back(id);
        }
        script.delay = std::chrono::microseconds(200);
        return script;
      },
      std::move(options));
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 24; ++i) {
    threads.emplace_back([&, i] {
      const std::string marker = "marker-" + std::to_string(i * 7919);
      const std::string body = R"({"messages":[{"role":"user","content":")" + marker + R"("}]})";
      const RawResponse response = gateway.Post(kPath, body);
      const auto answer = testing::Json(response.body);
      good += response.status == 200 &&
              answer.at("choices").as_array()[0].at("message").at("content").as_string() ==
                  marker.c_str();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 24);
}

TEST(Load, ASlowReaderGetsEverything) {
  const std::string text = [] {
    std::string s;
    for (int i = 0; i < 120; ++i) s += static_cast<char>('a' + i % 26);
    return s;
  }();
  Gateway gateway(
      [&](const v1::GenerateRequest&) {
        FakeEngine::Script script;
        script.tokens = TinyModel::Bytes(text);
        return script;
      },
      {});
  RawClient client(gateway.port());
  client.ShrinkReceiveBuffer();
  client.SendRequest("POST", kPath, kStream);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const RawResponse response = client.Read();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(Content(response.body), text);
}

TEST(Load, GracefulStopLetsAnAnswerFinish) {
  Gateway gateway(
      [](const v1::GenerateRequest&) {
        FakeEngine::Script script;
        script.tokens = TinyModel::Bytes("0123456789");
        script.delay = std::chrono::milliseconds(10);
        return script;
      },
      {});
  RawClient client(gateway.port());
  client.SendRequest("POST", kPath, kStream);
  ASSERT_TRUE(client.WaitFor("\"content\":\"0"));
  std::thread stopper([&] { gateway.server().Stop(120000); });
  const RawResponse response = client.Read();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(Content(response.body), "0123456789");
  EXPECT_THAT(response.body, HasSubstr("data: [DONE]"));
  client.Close();
  stopper.join();
}

}  // namespace
}  // namespace strata::gateway
