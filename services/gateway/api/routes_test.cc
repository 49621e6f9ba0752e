// The routes beside chat: plain completions, models, tokens, health, metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/gateway/api/fields.h"
#include "services/gateway/json/json.h"
#include "services/gateway/testing/gateway_fixture.h"

namespace strata::gateway {
namespace {

using testing::Events;
using testing::FakeEngine;
using testing::Fetch;
using testing::Gateway;
using ::testing::HasSubstr;
using testing::Json;
using ::testing::Not;
using testing::RawResponse;
using testing::TinyModel;

// Answers with the prompt's visible text in brackets.
FakeEngine::Script Mirror(const v1::GenerateRequest& request) {
  FakeEngine::Script script;
  std::string text = "[";
  for (const uint32_t id : request.prompt().ids()) {
    if (id < 256) text += static_cast<char>(id);
  }
  script.tokens = TinyModel::Bytes(text + "]");
  return script;
}

std::vector<std::string> Texts(const RawResponse& response) {
  std::vector<std::string> texts;
  const boost::json::value body = Json(response.body);
  for (const auto& choice : body.at("choices").as_array()) {
    texts.emplace_back(choice.at("text").as_string());
  }
  return texts;
}

TEST(Completions, AllFormsOfPrompt) {
  Gateway gateway(Mirror, {});
  const auto texts = [&](const std::string& prompt) {
    const RawResponse response =
        gateway.Post("/v1/completions", R"({"max_tokens":99,"prompt":)" + prompt + "}");
    EXPECT_EQ(response.status, 200) << response.body;
    return Texts(response);
  };
  using Strings = std::vector<std::string>;
  EXPECT_EQ(texts(R"("ab")"), (Strings{"[ab]"}));
  EXPECT_EQ(texts(R"(["ab","c"])"), (Strings{"[ab]", "[c]"}));
  EXPECT_EQ(texts("[97,98]"), (Strings{"[ab]"}));
  EXPECT_EQ(texts("[[97],[98,99]]"), (Strings{"[a]", "[bc]"}));
  EXPECT_EQ(texts(R"(["ab",[99]])"), (Strings{"[ab]", "[c]"}));
}

TEST(Completions, ShapeEchoAndDefaults) {
  Gateway gateway(Mirror, {});
  RawResponse response = gateway.Post("/v1/completions", R"({"prompt":"ab","echo":true,"n":2})");
  const std::string body =
      testing::Masked(testing::Masked(response.body, "cmpl-", "ID"), "\"created\":", "0");
  EXPECT_THAT(body,
              HasSubstr(R"({"id":"cmpl-ID","object":"text_completion","created":0,"model":"tiny",)"
                        R"("choices":[{"index":0,"text":"ab[ab]","logprobs":null,)"
                        R"("finish_reason":"stop"},{"index":1,)"));
  EXPECT_THAT(body, HasSubstr(R"("usage":{"prompt_tokens":3,"completion_tokens":8,)"));
  EXPECT_EQ(gateway.engine().requests()[0].max_tokens(), 16);
  response = gateway.Post("/v1/completions", R"({"prompt":"ab","best_of":2})");
  EXPECT_THAT(response.body, HasSubstr("\"param\":\"best_of\""));
}

TEST(Completions, StreamAndLogprobs) {
  Gateway gateway(Mirror, {});
  const RawResponse stream = gateway.Post(
      "/v1/completions",
      R"({"prompt":["a","b"],"stream":true,"echo":true,"stream_options":{"include_usage":true}})");
  std::string texts[2];
  const auto events = Events(stream.body);
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    const auto chunk = Json(events[i]);
    EXPECT_EQ(chunk.at("object").as_string(), "text_completion");
    const auto& choice = chunk.at("choices").as_array()[0];
    texts[ToInteger(choice.at("index"))] += choice.at("text").as_string().c_str();
  }
  EXPECT_EQ(texts[0], "a[a]");
  EXPECT_EQ(texts[1], "b[b]");
  EXPECT_EQ(events.back(), "[DONE]");

  const RawResponse whole = gateway.Post("/v1/completions", R"({"prompt":"a","logprobs":2})");
  EXPECT_EQ(ToJson(Json(whole.body).at("choices").as_array()[0].at("logprobs")),
            R"({"tokens":["[","a","]"],"token_logprobs":[-0.5,-0.5,-0.5],"top_logprobs":[)"
            R"({"[":-0.5,"\\":-1.5},{"a":-0.5,"b":-1.5},{"]":-0.5,"^":-1.5}],)"
            R"("text_offset":[0,1,2]})");
}

TEST(Completions, NoMarkersInPlainText) {
  Gateway gateway(
      [](const v1::GenerateRequest&) {
        return FakeEngine::Script{TinyModel::Bytes("<think>a</think><tool_call>")};
      },
      {});
  EXPECT_EQ(Texts(gateway.Post("/v1/completions", R"({"prompt":"x","max_tokens":99})"))[0],
            "<think>a</think><tool_call>");
}

TEST(Models, ListAndShow) {
  Gateway gateway(Mirror, {});
  const auto list = Json(gateway.Get("/v1/models").body);
  EXPECT_EQ(list.at("object").as_string(), "list");
  const auto& data = list.at("data").as_array();
  ASSERT_EQ(data.size(), 3);
  EXPECT_EQ(data[0].at("id").as_string(), "tiny");
  EXPECT_EQ(data[0].at("object").as_string(), "model");
  EXPECT_EQ(ToInteger(data[0].at("max_model_len")), 1000);
  EXPECT_EQ(ToInteger(data[0].at("context_length")), 1000);
  EXPECT_EQ(ToInteger(data[0].at("meta").at("n_ctx_train")), 4096);
  EXPECT_EQ(ToInteger(data[0].at("meta").at("n_params")), 123456);
  EXPECT_EQ(Json(gateway.Get("/v1/models/vendor%2Falias:7b").body).at("id").as_string(),
            "vendor/alias:7b");
  EXPECT_EQ(Json(gateway.Get("/v1/models/vendor/alias:7b").body).at("id").as_string(),
            "vendor/alias:7b");
  EXPECT_EQ(gateway.Get("/v1/models/other").status, 404);
}

TEST(Tokens, ThereAndBack) {
  Gateway gateway(Mirror, {});
  EXPECT_EQ(gateway.Post("/tokenize", R"({"content":"a<|end|>"})").body,
            R"({"tokens":[97,256],"count":2,"max_model_len":1000})");
  EXPECT_EQ(
      ToInteger(
          Json(gateway.Post("/tokenize", R"({"content":"a<|end|>","parse_special":false})").body)
              .at("count")),
      8);
  const auto pieces = Json(
      gateway.Post("/tokenize", R"({"content":"é","with_pieces":true,"add_special":true})").body);
  EXPECT_EQ(ToJson(pieces.at("tokens")),
            R"([{"id":257,"piece":"<|bos|>"},{"id":195,"piece":[195]},{"id":169,"piece":[169]}])");
  EXPECT_EQ(gateway.Post("/detokenize", R"({"tokens":[195,169,97]})").body,
            "{\"content\":\"\xC3\xA9"
            "a\"}");
  EXPECT_EQ(gateway.Post("/detokenize", R"({"tokens":[195]})").body,
            "{\"content\":\"\xEF\xBF\xBD\"}");
  const std::string chat = R"({"messages":[{"role":"user","content":"hi"}]})";
  EXPECT_EQ(gateway.Post("/apply-template", chat).body,
            R"({"prompt":"<|user|>hi<|end|><|assistant|>"})");
  EXPECT_EQ(ToInteger(Json(gateway.Post("/tokenize", chat).body).at("count")), 6);
}

TEST(Info, HealthPropertiesAndMetrics) {
  Gateway gateway(Mirror, {});
  EXPECT_EQ(gateway.Get("/health").body, R"({"status":"ok"})");
  EXPECT_EQ(gateway.Get("/v1/health").status, 200);
  EXPECT_EQ(Fetch(gateway.port(), "GET", "/").status, 200);
  const auto props = Json(gateway.Get("/props").body);
  EXPECT_EQ(ToInteger(props.at("default_generation_settings").at("n_ctx")), 1000);
  EXPECT_EQ(ToInteger(props.at("total_slots")), 4);
  EXPECT_EQ(props.at("chat_template").as_string(), "{{ tiny }}");

  gateway.Post("/v1/completions", R"({"prompt":"secret words"})");
  gateway.Post("/v1/completions", R"({"prompt":5})");
  const RawResponse metrics = gateway.Get("/metrics");
  EXPECT_EQ(metrics.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line :
       {"strata:requests_total{route=\"/v1/completions\",status=\"200\"} 1",
        "strata:requests_total{route=\"/v1/completions\",status=\"400\"} 1",
        "strata:request_success_total{finished_reason=\"stop\"} 1", "strata:prompt_tokens_total 13",
        "strata:generation_tokens_total 14", "strata:time_to_first_token_seconds_count 1",
        "strata:inter_token_latency_seconds_count", "llamacpp:prompt_tokens_total 13",
        "llamacpp:tokens_predicted_total 14", "llamacpp:requests_processing 0",
        "llamacpp:requests_deferred 0", "strata:kv_cache_usage_ratio 0.25",
        "strata:daemon_up{daemon=\"kvstore\"} 0"}) {
    EXPECT_THAT(metrics.body, HasSubstr(line));
  }
  EXPECT_THAT(metrics.body, Not(HasSubstr("secret")));
}

TEST(Access, EveryRouteButTheProbesNeedsTheKey) {
  Gateway::Options options;
  ASSERT_TRUE(options.server.access.keys.Add("ann", "key-of-ann").ok());
  ASSERT_TRUE(options.server.access.keys.Add("bob", "key-of-bob").ok());
  Gateway gateway(Mirror, std::move(options));
  for (const char* path : {"/v1/models", "/v1/models/tiny", "/props", "/metrics"}) {
    EXPECT_EQ(gateway.Get(path).status, 401) << path;
  }
  for (const char* path :
       {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/apply-template"}) {
    EXPECT_EQ(gateway.Post(path, "{}").status, 401) << path;
  }
  for (const char* path : {"/health", "/v1/health", "/"}) {
    EXPECT_EQ(gateway.Get(path).status, 200) << path;
  }
  EXPECT_EQ(
      gateway.Post("/v1/completions", R"({"prompt":"x"})", "x-api-key: key-of-bob\r\n").status,
      200);
  EXPECT_EQ(gateway.engine().tenants()[0], "bob");
  EXPECT_EQ(gateway.engine().requests()[0].client(), "key:bob");
}

}  // namespace
}  // namespace strata::gateway
