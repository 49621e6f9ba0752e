#include <gtest/gtest.h>

#include <random>

#include "services/gateway/chat/output_parser.h"
#include "services/gateway/chat/stop_matcher.h"

namespace strata::gateway {
namespace {

using Kind = OutputPart::Kind;

// Parts joined per kind run, as a readable string.
std::string Show(const std::vector<OutputPart>& parts) {
  std::string out;
  Kind last = Kind::kToolCall;
  for (const OutputPart& part : parts) {
    if (part.kind == Kind::kToolCall) {
      out += "[call " + part.name + " " + part.arguments + "]";
    } else {
      if (part.kind != last || out.empty()) out += part.kind == Kind::kReasoning ? "R:" : "C:";
      out += part.text;
    }
    last = part.kind;
  }
  return out;
}

// Feeds `text` in pieces; "\x01".."\x04" stand for marker tokens.
std::string Parse(const ParserOptions& options, const std::string& text, bool cut_off = false,
                  std::mt19937* random = nullptr, size_t step = 1 << 20) {
  OutputParser parser(options);
  std::vector<OutputPart> parts;
  for (size_t i = 0; i < text.size();) {
    if (text[i] >= 1 && text[i] <= 4) {
      parser.PushMarker(static_cast<Marker>(text[i] - 1), &parts);
      ++i;
      continue;
    }
    size_t n = random != nullptr ? 1 + (*random)() % 7 : step;
    n = std::min(n, text.find_first_of("\x01\x02\x03\x04", i) - i);
    n = std::min(n, text.size() - i);
    parser.PushText(std::string_view(text).substr(i, n), &parts);
    i += n;
  }
  parser.Finish(cut_off, &parts);
  EXPECT_EQ(parser.held(), 0);
  return Show(parts);
}

ParserOptions All() { return {.reasoning = true, .tools = true}; }
ParserOptions AllTokens() {
  return {.reasoning = true, .tools = true, .is_token = {true, true, true, true}};
}

TEST(OutputParser, ReasoningThenContent) {
  EXPECT_EQ(Parse(All(), "<think>\nhm, \n yes\n</think>\n\nHello  there \n"),
            "R:hm, \n yesC:Hello  there \n");
  EXPECT_EQ(Parse(All(), "\n <think>a</think>b"), "R:aC:b");
  EXPECT_EQ(Parse(All(), "<think></think>b"), "C:b");
  EXPECT_EQ(Parse(All(), "plain"), "C:plain");
  EXPECT_EQ(Parse(All(), " <thin"), "C: <thin");
  EXPECT_EQ(Parse(All(), "<think>never closed "), "R:never closed");
  ParserOptions open = All();
  open.starts_in_reasoning = true;
  EXPECT_EQ(Parse(open, "\nyes</think>\nno"), "R:yesC:no");
}

TEST(OutputParser, MarkersInTheMiddleAreText) {
  EXPECT_EQ(Parse(All(), "The tag <think> opens, </think> closes."),
            "C:The tag <think> opens, </think> closes.");
  ParserOptions off;
  EXPECT_EQ(Parse(off, "<think>x</think><tool_call>{\"name\":\"f\"}</tool_call>"),
            "C:<think>x</think><tool_call>{\"name\":\"f\"}</tool_call>");
}

TEST(OutputParser, TokensDecideWhereTheVocabularyHasThem) {
  EXPECT_EQ(Parse(AllTokens(), "\x01\nhm <think> </think> <tool_call>\n\x02\n\nAnswer <think>"),
            "R:hm <think> </think> <tool_call>C:Answer <think>");
  EXPECT_EQ(Parse(AllTokens(), "<think>\x01x\x02y"), "C:<think>R:xC:y");
  EXPECT_EQ(Parse(AllTokens(), "a\x03{\"name\":\"f\",\"arguments\":{\"s\":\"</tool_call>\"}}\x04"),
            "C:a[call f {\"s\":\"</tool_call>\"}]");
  EXPECT_EQ(Parse(AllTokens(), "\x01thinking \x03{\"name\":\"f\"}\x04"), "R:thinking[call f {}]");
  EXPECT_EQ(Parse({},
                  "a\x01"
                  "b\x02"
                  "c\x03"
                  "d\x04"),
            "C:a<think>b</think>c<tool_call>d</tool_call>");
}

TEST(OutputParser, ToolCalls) {
  EXPECT_EQ(
      Parse(All(),
            "Let me look.\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1.50}}\n"
            "</tool_call>\n<tool_call>\n{\"arguments\": {}, \"name\": \"b\"}\n</tool_call>\n"),
      "C:Let me look.[call get {\"a\": 1.50}][call b {}]");
  EXPECT_EQ(Parse(All(), "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}</tool_call>"),
            "[call f {\"x\":1}]");
  EXPECT_EQ(Parse(All(), "<tool_call>{\"name\":\"f\",\"parameters\":null}</tool_call>"),
            "[call f {}]");
  // The end came before the closing mark.
  EXPECT_EQ(Parse(All(), "<tool_call>{\"name\":\"f\",\"arguments\":{}}"), "[call f {}]");
}

TEST(OutputParser, BrokenToolCallsAreContentOrDropped) {
  EXPECT_EQ(Parse(All(), "<tool_call>{\"name\":</tool_call> after"),
            "C:<tool_call>{\"name\":</tool_call>after");
  EXPECT_EQ(Parse(All(), "<tool_call>{\"name\":3}</tool_call>"),
            "C:<tool_call>{\"name\":3}</tool_call>");
  EXPECT_EQ(Parse(All(), "x <tool_call>{\"name\":\"f\",\"argu"),
            "C:x<tool_call>{\"name\":\"f\",\"argu");
  EXPECT_EQ(Parse(All(), "x <tool_call>{\"name\":\"f\",\"argu", true), "C:x");
  EXPECT_EQ(Parse(All(), "<tool_call>nope</tool_call><tool_call>{\"name\":\"f\"}</tool_call>"),
            "C:<tool_call>nope</tool_call>[call f {}]");
  EXPECT_EQ(Parse(All(),
                  "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"</tool_call>\"}}"
                  "</tool_call>"),
            "[call f {\"s\":\"</tool_call>\"}]");
}

TEST(OutputParser, ForcedCallStartsInside) {
  ParserOptions options = AllTokens();
  options.starts_in_call = true;
  options.call_prefix = "{\"name\": \"f\", \"arguments\": ";
  EXPECT_EQ(Parse(options, "{\"a\":1}}\n\x04"), "[call f {\"a\":1}]");
}

TEST(OutputParser, TheCutsDoNotMatter) {
  static const char* const kParts[] = {"<think>",
                                       "</think>",
                                       "<tool_call>",
                                       "</tool_call>",
                                       "\x01",
                                       "\x02",
                                       "\x03",
                                       "\x04",
                                       "\n",
                                       " ",
                                       "<",
                                       "</",
                                       "think",
                                       ">",
                                       "{\"name\":\"f\",\"arguments\":{\"k\":\"v\"}}",
                                       "\"",
                                       "text",
                                       "<tool_",
                                       "call>",
                                       "\xE6\xAD\xA3",
                                       "{",
                                       "}"};
  std::mt19937 random(4);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t i = random() % 12; i > 0; --i) text += kParts[random() % std::size(kParts)];
    ParserOptions options;
    options.reasoning = random() % 2;
    options.tools = random() % 2;
    options.starts_in_reasoning = options.reasoning && random() % 3 == 0;
    for (bool& is_token : options.is_token) is_token = random() % 2;
    const bool cut_off = random() % 2;
    const std::string whole = Parse(options, text, cut_off);
    ASSERT_EQ(Parse(options, text, cut_off, nullptr, 1), whole) << text;
    ASSERT_EQ(Parse(options, text, cut_off, &random), whole) << text;
  }
}

std::string Stop(const std::vector<std::string>& stops, const std::string& text,
                 std::mt19937* random, std::string* matched) {
  StopMatcher matcher(stops);
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t n = random == nullptr ? text.size() : 1 + (*random)() % 4;
    out += matcher.Push(std::string_view(text).substr(i, n));
    i += n;
  }
  out += matcher.Finish();
  *matched = matcher.matched();
  return out;
}

TEST(StopMatcher, CutsAtTheEarliestStop) {
  std::string matched;
  EXPECT_EQ(Stop({"Observation:"}, "x\nObservation: y", nullptr, &matched), "x\n");
  EXPECT_EQ(matched, "Observation:");
  EXPECT_EQ(Stop({"bc", "abcd"}, "xabcd", nullptr, &matched), "xa");
  EXPECT_EQ(Stop({"bc", "abc"}, "xabcd", nullptr, &matched), "x");
  EXPECT_EQ(matched, "abc");
  EXPECT_EQ(Stop({}, "abc", nullptr, &matched), "abc");
  EXPECT_EQ(Stop({""}, "abc", nullptr, &matched), "abc");
  EXPECT_EQ(Stop({"aab"}, "aaab", nullptr, &matched), "a");
  EXPECT_EQ(Stop({"abcx"}, "abc", nullptr, &matched), "abc");
}

TEST(StopMatcher, HoldsBackNoMoreThanNeeded) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.Push("abcE"), "abc");
  EXPECT_EQ(matcher.held(), 1);
  EXPECT_EQ(matcher.Push("x"), "Ex");
  EXPECT_EQ(matcher.Push("EN"), "");
  EXPECT_EQ(matcher.Push("D!"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.discarded(), 4);
  EXPECT_EQ(matcher.Push("more"), "");
}

TEST(StopMatcher, TheCutsDoNotMatter) {
  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    const auto word = [&](size_t most) {
      std::string s;
      for (size_t i = random() % most; i > 0; --i) s += static_cast<char>('a' + random() % 2);
      return s;
    };
    const std::vector<std::string> stops = {word(5), word(5), word(7)};
    const std::string text = word(20);
    std::string matched;
    std::string matched_whole;
    const std::string whole = Stop(stops, text, nullptr, &matched_whole);
    // The definition, naively: the earliest end, of these the longest.
    std::string expected = text;
    bool found = false;
    for (size_t end = 1; end <= text.size() && !found; ++end) {
      size_t longest = 0;
      for (const std::string& stop : stops) {
        if (!stop.empty() && std::string_view(text).substr(0, end).ends_with(stop)) {
          longest = std::max(longest, stop.size());
        }
      }
      if (longest > 0) {
        expected = text.substr(0, end - longest);
        found = true;
      }
    }
    ASSERT_EQ(whole, expected);
    ASSERT_EQ(Stop(stops, text, &random, &matched), whole);
    ASSERT_EQ(matched, matched_whole);
  }
}

}  // namespace
}  // namespace strata::gateway
