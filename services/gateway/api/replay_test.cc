// What an agent sends back of a tool call renders to the tokens that the model wrote.
#include "services/gateway/api/replay.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "services/gateway/json/json.h"
#include "services/gateway/testing/gateway_fixture.h"

namespace strata::gateway {
namespace {

namespace json = boost::json;
using testing::FakeEngine;
using testing::Gateway;
using testing::Json;
using testing::RawResponse;
using testing::TinyModel;

constexpr char kAnswer[] =
    "Let me look.\n\n<tool_call>\n{\"name\":\"f\",  \"arguments\":{\"path\":\"caf\\u00e9\","
    "\"lines\" : [1, 2]}}\n</tool_call>";
constexpr char kTools[] = R"([{"type":"function","function":{"name":"f","parameters":{}}}])";

// Answers with tool calls, then with "ok".
FakeEngine::Writer CallsOnce(const std::string& answer) {
  return [answer, calls = std::make_shared<std::atomic<int>>(0)](const v1::GenerateRequest&) {
    FakeEngine::Script script;
    script.tokens = TinyModel::Bytes((*calls)++ == 0 ? answer : "ok");
    return script;
  };
}

class ReplayTest : public ::testing::Test {
 protected:
  // The first turn; returns the message that the client got.
  json::object FirstTurn(Gateway& gateway) {
    const RawResponse response = gateway.Post("/v1/chat/completions", Body({}));
    EXPECT_EQ(response.status, 200) << response.body;
    return Json(response.body).at("choices").at(0).at("message").as_object();
  }
  static std::string Body(const std::vector<json::object>& more) {
    json::array messages = {json::object{{"role", "user"}, {"content", "look at it"}}};
    for (const json::object& message : more) messages.push_back(message);
    return ToJson(json::object{{"messages", messages}, {"tools", Json(kTools)}});
  }
  // The second turn with the first one's message and a result: the prompt that the engine got.
  std::vector<uint32_t> SecondPrompt(Gateway& gateway, const json::object& message) {
    const json::object result{{"role", "tool"},
                              {"tool_call_id", message.at("tool_calls").at(0).at("id")},
                              {"content", "it is there"}};
    const RawResponse response = gateway.Post("/v1/chat/completions", Body({message, result}));
    EXPECT_EQ(response.status, 200) << response.body;
    const v1::GenerateRequest request = gateway.engine().requests().back();
    return {request.prompt().ids().begin(), request.prompt().ids().end()};
  }
  // The prompt of the first turn up to its answer, and the answer as it was generated.
  static std::vector<uint32_t> FirstTurnTokens(Gateway& gateway, const std::string& answer) {
    const v1::GenerateRequest request = gateway.engine().requests().front();
    // TinyModel writes the tools behind the messages, in front of the answer.
    const auto& ids = request.prompt().ids();
    std::vector<uint32_t> tokens(ids.begin(), std::find(ids.begin(), ids.end(), '['));
    tokens.push_back(TinyModel::kAssistant);
    const std::vector<uint32_t> bytes = TinyModel::Bytes(answer);
    tokens.insert(tokens.end(), bytes.begin(), bytes.end());
    tokens.push_back(TinyModel::kEnd);
    return tokens;
  }
  static bool StartsWith(const std::vector<uint32_t>& tokens,
                         const std::vector<uint32_t>& beginning) {
    return tokens.size() >= beginning.size() &&
           std::equal(beginning.begin(), beginning.end(), tokens.begin());
  }
  static void SetArguments(json::object& message, std::string_view arguments) {
    message["tool_calls"].at(0).at("function").as_object()["arguments"] = arguments;
  }
};

TEST_F(ReplayTest, ReformattedArgumentsGiveTheTokensThatTheModelWrote) {
  for (const char* arguments :
       {"{\"path\":\"caf\\u00e9\",\"lines\" : [1, 2]}", "{\"lines\": [1, 2], \"path\": \"café\"}",
        "{\n  \"path\": \"caf\xC3\xA9\",\n  \"lines\": [\n1,\n2\n]\n}"}) {
    Gateway gateway(CallsOnce(kAnswer), {});
    json::object message = FirstTurn(gateway);
    SetArguments(message, arguments);
    EXPECT_TRUE(StartsWith(SecondPrompt(gateway, message), FirstTurnTokens(gateway, kAnswer)))
        << arguments;
  }
}

TEST_F(ReplayTest, WhatSaysSomethingElseIsRenderedAsItIs) {
  const auto changed = [&](const std::function<void(json::object&)>& change) {
    Gateway gateway(CallsOnce(kAnswer), {});
    json::object message = FirstTurn(gateway);
    change(message);
    const std::vector<uint32_t> prompt = SecondPrompt(gateway, message);
    std::string text;
    for (const uint32_t id : prompt) text += id < 256 ? std::string(1, static_cast<char>(id)) : "|";
    EXPECT_FALSE(StartsWith(prompt, FirstTurnTokens(gateway, kAnswer)));
    EXPECT_NE(text.find("it is there"), std::string::npos);
    return text;
  };
  EXPECT_NE(changed([&](json::object& m) {
              SetArguments(m, "{\"path\":\"tea\",\"lines\":[1,2]}");
            }).find("tea"),
            std::string::npos);
  EXPECT_NE(changed([](json::object& m) { m["content"] = "I will look."; }).find("I will look."),
            std::string::npos);
  changed([](json::object& m) { m["tool_calls"].at(0).as_object()["id"] = "call_of_another"; });
  changed([](json::object& m) { m["tool_calls"].at(0).at("function").as_object()["name"] = "g"; });
}

TEST_F(ReplayTest, ReasoningIsTheTemplatesBusiness) {
  const std::string call = "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":  1}}\n</tool_call>";
  Gateway gateway(
      [&](const v1::GenerateRequest&) {
        FakeEngine::Script script;
        script.tokens = TinyModel::Bytes("I wonder.\n");
        script.tokens.push_back(TinyModel::kFirstWord);  // </think>
        const auto rest = TinyModel::Bytes("\n\n" + call);
        script.tokens.insert(script.tokens.end(), rest.begin(), rest.end());
        return script;
      },
      {.words = {"</think>"}, .prompt_tail = "<think>\n"});
  json::object message = FirstTurn(gateway);
  EXPECT_EQ(message.at("reasoning_content").as_string(), "I wonder.");
  message.erase("reasoning_content");
  SetArguments(message, "{ \"a\": 1 }");
  EXPECT_TRUE(StartsWith(SecondPrompt(gateway, message), FirstTurnTokens(gateway, call)));
}

TEST_F(ReplayTest, ABookOutlivesItsProcessAndKeepsTenantsApart) {
  FakeEngine engine([](const v1::GenerateRequest&) { return FakeEngine::Script(); });
  const Replay replay{"content", {{"call_1", "f", "{\"a\":1}"}, {"call_2", "g", "{}"}}, {5, 6, 7}};
  {
    ReplayBook book(&engine);
    book.Put("alice", replay);
    EXPECT_TRUE(book.Get("alice", "call_1", /*ask_store=*/false));
    book.Put("alice", Replay{"no calls", {}, {1}});
    Replay large = replay;
    large.calls[0].id = "call_large";
    large.content.assign(ReplayBook::kMostBytes, 'x');
    book.Put("alice", large);
    EXPECT_FALSE(book.Get("alice", "call_large"));
  }
  ReplayBook book(&engine);
  EXPECT_FALSE(book.Get("alice", "call_1", /*ask_store=*/false));
  const auto again = book.Get("alice", "call_1");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->content, replay.content);
  EXPECT_EQ(again->tokens, replay.tokens);
  ASSERT_EQ(again->calls.size(), 2u);
  EXPECT_EQ(again->calls[1].name, "g");
  EXPECT_FALSE(book.Get("bob", "call_1"));
  EXPECT_FALSE(book.Get("", "alicecall_1"));
  // Memory is bounded: what it lost is asked for again.
  for (size_t i = 0; i < ReplayBook::kInMemory; ++i) book.Get("bob", "none" + std::to_string(i));
  EXPECT_FALSE(book.Get("alice", "call_1", /*ask_store=*/false));
  EXPECT_TRUE(book.Get("alice", "call_1"));
}

TEST_F(ReplayTest, DamagedRecordsAreNotUsed) {
  FakeEngine engine([](const v1::GenerateRequest&) { return FakeEngine::Script(); });
  ReplayBook(&engine).Put("", Replay{"", {{"call_1", "f", "{}"}}, {5}});
  // Every name that is ever used gets something else.
  for (size_t i = 0; i < ReplayBook::kSlots; ++i) {
    const std::string name = "replay-" + std::to_string(i);
    const auto kept = engine.Recall(name);
    if (!kept.ok()) continue;
    for (size_t cut = 0; cut < kept->size(); ++cut) {
      engine.Remember(name, kept->substr(0, cut));
      EXPECT_FALSE(ReplayBook(&engine).Get("", "call_1")) << cut;
    }
  }
}

}  // namespace
}  // namespace strata::gateway
