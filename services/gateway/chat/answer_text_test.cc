#include "services/gateway/chat/answer_text.h"

#include <gtest/gtest.h>

#include <random>

#include "services/gateway/testing/tiny_model.h"

namespace strata::gateway {
namespace {

using testing::TinyModel;
using Kind = OutputPart::Kind;

struct Seen {
  std::string reasoning;
  std::string content;
  int calls = 0;
  std::vector<uint32_t> tokens;
  bool stopped = false;
};

Seen Feed(const Model& model, const std::vector<uint32_t>& ids, ParserOptions options = {},
          std::vector<std::string> stops = {}) {
  AnswerText answer(&model, options, std::move(stops), true);
  Seen seen;
  const auto take = [&](const AnswerDelta& delta) {
    for (const OutputPart& part : delta.parts) {
      if (part.kind == Kind::kReasoning) seen.reasoning += part.text;
      if (part.kind == Kind::kContent) seen.content += part.text;
      if (part.kind == Kind::kToolCall) ++seen.calls;
      EXPECT_EQ(ToValidUtf8(part.text), part.text);
    }
    for (const auto& token : delta.tokens) seen.tokens.push_back(token.id());
  };
  for (const uint32_t id : ids) {
    v1::GeneratedToken token;
    token.set_id(id);
    AnswerDelta delta;
    answer.Push(token, &delta);
    take(delta);
  }
  AnswerDelta delta;
  answer.Finish(false, &delta);
  take(delta);
  seen.stopped = answer.stopped();
  return seen;
}

TEST(AnswerText, HalfCharactersWaitAndDeadBytesAreReplaced) {
  const TinyModel model;
  const std::string text = "\xE6\xAD\xA3\xF0\x9F\x98\x80";
  EXPECT_EQ(Feed(model, TinyModel::Bytes(text)).content, text);
  EXPECT_EQ(Feed(model, {0xE6, 0xAD, 0x27}).content, "\xEF\xBF\xBD\xEF\xBF\xBD'");
  EXPECT_EQ(Feed(model, {0x41, 0xF0, 0x9F}).content, "A\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(AnswerText, ControlTokensAreNotShown) {
  const TinyModel model;
  EXPECT_EQ(Feed(model, {'a', TinyModel::kUser, 'b', 5000}).content, "ab");
}

TEST(AnswerText, StopStringsAcrossTokens) {
  const TinyModel model({"Obser", "vation:", " tail"});
  const Seen seen = Feed(model, {'x', '\n', 300, 301, 302}, {}, {"Observation:"});
  EXPECT_EQ(seen.content, "x\n");
  EXPECT_TRUE(seen.stopped);
  EXPECT_EQ(seen.tokens, (std::vector<uint32_t>{'x', '\n'}));
}

TEST(AnswerText, TokensWaitForTheirText) {
  const TinyModel model;
  AnswerText answer(&model, {}, {"END"}, true);
  const auto push = [&](char c) {
    v1::GeneratedToken token;
    token.set_id(static_cast<unsigned char>(c));
    AnswerDelta delta;
    answer.Push(token, &delta);
    return delta.tokens.size();
  };
  EXPECT_EQ(push('a'), 1);
  EXPECT_EQ(push('E'), 0);
  EXPECT_EQ(push('N'), 0);
  EXPECT_EQ(push('x'), 3);
  EXPECT_EQ(push('\xC3'), 0);
  EXPECT_EQ(push('\xA9'), 2);
}

TEST(AnswerText, StopAppliesToContentOnly) {
  const TinyModel model;
  const ParserOptions options{.reasoning = true, .tools = true};
  const Seen seen =
      Feed(model,
           TinyModel::Bytes("<think>a b,c d</think>x}<tool_call>{\"name\":\"f\",\"arguments\":{}}"
                            "</tool_call>b,c"),
           options, {"b,c"});
  EXPECT_EQ(seen.reasoning, "a b,c d");
  EXPECT_EQ(seen.content, "x}");
  EXPECT_EQ(seen.calls, 1);
  EXPECT_TRUE(seen.stopped);
}

TEST(AnswerText, TokenBordersDoNotMatter) {
  static const char* const kParts[] = {
      "<think>",      "</think>", "<tool_call>", "</tool_call>",
      "\n",           " ",        "EN",          "D",
      "\xE6\xAD\xA3", "\xE6\xAD", "text",        "{\"name\":\"f\",\"arguments\":{}}"};
  std::mt19937 random(6);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (size_t i = random() % 10; i > 0; --i) text += kParts[random() % std::size(kParts)];
    std::vector<std::string> words;
    std::vector<uint32_t> ids;
    for (size_t i = 0; i < text.size();) {
      const size_t n = 1 + random() % 5;
      ids.push_back(TinyModel::kFirstWord + static_cast<uint32_t>(words.size()));
      words.push_back(text.substr(i, n));
      i += n;
    }
    // A word that happens to be a marker would be a marker token.
    const TinyModel cut(words);
    if (MarkerTokens::Of(cut).id[0] || MarkerTokens::Of(cut).id[1] || MarkerTokens::Of(cut).id[2] ||
        MarkerTokens::Of(cut).id[3]) {
      continue;
    }
    const ParserOptions options{.reasoning = true, .tools = true};
    const Seen a = Feed(cut, ids, options, {"END"});
    const Seen b = Feed(TinyModel(), TinyModel::Bytes(text), options, {"END"});
    ASSERT_EQ(a.reasoning, b.reasoning) << text;
    ASSERT_EQ(a.content, b.content) << text;
    ASSERT_EQ(a.calls, b.calls) << text;
    ASSERT_EQ(a.stopped, b.stopped) << text;
    if (!a.stopped) {
      ASSERT_EQ(a.tokens, ids);
    }
  }
}

}  // namespace
}  // namespace strata::gateway
