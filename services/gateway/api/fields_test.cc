// Every known field with every wrong type, on every route that reads JSON: 400 that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/gateway/api/chat_request.h"
#include "services/gateway/api/completion_request.h"
#include "services/gateway/api/tokens.h"
#include "services/gateway/json/json.h"
#include "services/gateway/testing/gateway_fixture.h"

namespace strata::gateway {
namespace {

using testing::FakeEngine;
using testing::Fetch;
using testing::Gateway;
using testing::Json;
using testing::RawClient;
using testing::RawResponse;

struct Surface {
  const char* path;
  std::span<const FieldSpec> fields;
  const char* good;  // a body that is accepted
};

std::vector<Surface> Surfaces() {
  return {
      {"/v1/chat/completions", ChatFields(), R"({"messages":[{"role":"user","content":"hi"}]})"},
      {"/v1/completions", CompletionFields(), R"({"prompt":"hi"})"},
      {"/tokenize", TokenizeFields(), R"({"content":"hi"})"},
      {"/detokenize", DetokenizeFields(), R"({"tokens":[65]})"}};
}

class FieldsTest : public ::testing::Test {
 protected:
  Gateway gateway_{[](const v1::GenerateRequest&) { return FakeEngine::Script{{'x'}}; }, {}};
  RawClient client_{gateway_.port()};

  RawResponse Post(const char* path, const std::string& body) {
    client_.SendRequest("POST", path, body);
    return client_.Read();
  }
};

TEST_F(FieldsTest, WrongTypesNameTheField) {
  static constexpr std::pair<uint8_t, const char*> kSamples[] = {
      {kBool, "true"},  {kInteger | kNumber, "1"},
      {kNumber, "0.5"}, {kString, "\"x\""},
      {kArray, "[]"},   {kObject, "{}"}};
  int checked = 0;
  for (const Surface& surface : Surfaces()) {
    for (const FieldSpec& spec : surface.fields) {
      for (const auto& [kind, sample] : kSamples) {
        if ((spec.kinds & kind) != 0) continue;
        boost::json::object body = Json(surface.good).as_object();
        const std::string name(spec.name);
        body[name] = Json(sample);
        const RawResponse response = Post(surface.path, ToJson(body));
        ASSERT_EQ(response.status, 400) << surface.path << " " << name << " = " << sample;
        EXPECT_EQ(Json(response.body).at("error").at("param").as_string(), name);
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 200);
}

TEST_F(FieldsTest, ValuesOutOfRangeNameTheField) {
  for (const Surface& surface : Surfaces()) {
    for (const FieldSpec& spec : surface.fields) {
      if ((spec.kinds & (kInteger | kNumber)) == 0) continue;
      boost::json::object body = Json(surface.good).as_object();
      const std::string name(spec.name);
      if (std::isfinite(spec.min)) {
        body[name] = spec.min - 1;
        const RawResponse response = Post(surface.path, ToJson(body));
        EXPECT_EQ(response.status, 400) << name;
        EXPECT_EQ(Json(response.body).at("error").at("param").as_string(), name);
      }
      if (std::isfinite(spec.max) && spec.max < 1e18) {
        body[name] = spec.max + 1;
        EXPECT_EQ(Post(surface.path, ToJson(body)).status, 400) << name;
      }
      // Beyond what a double holds.
      const std::string huge = surface.good;
      const RawResponse response =
          Post(surface.path, huge.substr(0, huge.size() - 1) + ",\"" + name + "\":1e999}");
      EXPECT_EQ(response.status, 400) << name;
    }
  }
}

TEST_F(FieldsTest, NullMeansAbsent) {
  for (const Surface& surface : Surfaces()) {
    for (const FieldSpec& spec : surface.fields) {
      boost::json::object body = Json(surface.good).as_object();
      const std::string name(spec.name);
      if (body.contains(name)) continue;
      body[name] = nullptr;
      EXPECT_EQ(Post(surface.path, ToJson(body)).status, 200) << surface.path << " " << name;
    }
  }
}

TEST_F(FieldsTest, BodiesThatAreNoObjects) {
  for (const char* path :
       {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/apply-template"}) {
    for (const std::string body : {"",
                                   "[]",
                                   "5",
                                   "\"x\"",
                                   "null",
                                   "{",
                                   "{\"a\":}",
                                   "{} {}",
                                   "{}",
                                   "{\"messages\":[]}",
                                   "{\"messages\":[1]}",
                                   "{\"messages\":[{}]}",
                                   "{\"messages\":{}}",
                                   "\xff\xfe",
                                   "{\"prompt\":[]}",
                                   "{\"prompt\":[{}]}",
                                   "{\"prompt\":[[-1]]}",
                                   "{\"prompt\":[70000]}",
                                   "{\"tokens\":[1e99]}",
                                   "{\"tokens\":[\"x\"]}",
                                   "{\"prompt\":\"a\",\"suffix\":\"b\"}"}) {
      const RawResponse response = Post(path, body);
      if (std::string_view(path) == "/tokenize" && body.starts_with("{\"prompt\":\"a\"")) continue;
      EXPECT_EQ(response.status, 400) << path << " " << body;
      EXPECT_TRUE(Json(response.body).at("error").at("message").is_string());
    }
    std::string deep = "{\"messages\":";
    deep += std::string(100000, '[');
    EXPECT_EQ(Post(path, deep).status, 400);
  }
  EXPECT_EQ(gateway_.Get("/health").status, 200);
}

TEST_F(FieldsTest, NestedFieldsAreNamedByTheirPath) {
  const auto param = [&](const std::string& body) {
    const RawResponse response = Post("/v1/chat/completions", body);
    EXPECT_EQ(response.status, 400) << body;
    return std::string(Json(response.body).at("error").at("param").as_string());
  };
  EXPECT_EQ(param(R"({"messages":[{"role":1}]})"), "messages[0].role");
  EXPECT_EQ(param(R"({"messages":[{"role":"user","content":5}]})"), "messages[0].content");
  const std::string head = R"({"messages":[{"role":"user","content":"x"}],)";
  EXPECT_EQ(param(head + R"("tools":[5]})"), "tools[0]");
  EXPECT_EQ(param(head + R"("tools":[{"function":{"name":""}}]})"), "tools[0].function.name");
  EXPECT_EQ(param(head + R"("tools":[{"function":{"name":"a","parameters":1}}]})"),
            "tools[0].function.parameters");
  EXPECT_EQ(param(head + R"("stream_options":{"include_usage":"yes"}})"),
            "stream_options.include_usage");
  EXPECT_EQ(param(head + R"("stop":["a",1]})"), "stop");
  EXPECT_EQ(param(head + R"("logit_bias":{"99999":1}})"), "logit_bias");
  EXPECT_EQ(param(head + R"("logit_bias":{"-1":1}})"), "logit_bias");
  EXPECT_EQ(param(head + R"("logit_bias":{"5":"x"}})"), "logit_bias");
  EXPECT_EQ(param(head + R"("logit_bias":[[5]]})"), "logit_bias");
  EXPECT_EQ(param(head + R"("top_logprobs":3})"), "top_logprobs");
  EXPECT_EQ(param(head + R"("max_tokens":0})"), "max_tokens");
}

}  // namespace
}  // namespace strata::gateway
