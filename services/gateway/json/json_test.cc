#include "services/gateway/json/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include <boost/json/object.hpp>

#include "services/gateway/json/utf8.h"

namespace strata::gateway {
namespace {

TEST(ParseJson, AcceptsDocumentsAndSkipsTheByteOrderMark) {
  EXPECT_TRUE(ParseJson("{\"a\":[1,2,{}]}").ok());
  EXPECT_TRUE(ParseJson("\xEF\xBB\xBF{\"a\":1} \n").ok());
  EXPECT_EQ(ParseJson("{\"a\":1,\"a\":2}")->as_object().at("a").as_int64(), 2);
}

TEST(ParseJson, RefusesBrokenTextWithItsPosition) {
  for (const char* text : {"", " ", "{", "{\"a\":}", "{} x", "[1,]", "{\"a\":\"\xff\"}", "nul",
                           "{\"a\":1}{\"b\":2}", "NaN", "{'a':1}"}) {
    const auto parsed = ParseJson(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.status().message().find("byte"), absl::string_view::npos);
  }
}

TEST(ParseJson, RefusesDeepNesting) {
  EXPECT_TRUE(ParseJson(std::string(90, '[') + std::string(90, ']')).ok());
  EXPECT_FALSE(ParseJson(std::string(100000, '[')).ok());
  std::string objects;
  for (int i = 0; i < 1000; ++i) objects += "{\"a\":";
  EXPECT_FALSE(ParseJson(objects).ok());
}

TEST(ParseJson, LoneSurrogatesBecomeReplacementCharacters) {
  EXPECT_EQ(ToJson(*ParseJson(R"("a\ud83d")")), "\"a\xEF\xBF\xBD\"");
  EXPECT_EQ(ToJson(*ParseJson(R"("\ude00b")")),
            "\"\xEF\xBF\xBD"
            "b\"");
  EXPECT_EQ(ToJson(*ParseJson(R"("\ud83d\u0041")")),
            "\"\xEF\xBF\xBD"
            "A\"");
  EXPECT_EQ(ToJson(*ParseJson(R"("\ud83d\ude00")")), "\"\xF0\x9F\x98\x80\"");
  EXPECT_EQ(ToJson(*ParseJson(R"("\\ud83d")")), R"("\\ud83d")");
}

TEST(ToJson, PrintsShortNumbersAndNullForTheRest) {
  EXPECT_EQ(ToJson(0.7), "0.7");
  EXPECT_EQ(ToJson(-1.5e300), "-1.5e+300");
  EXPECT_EQ(ToJson(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(ToJson(std::numeric_limits<double>::quiet_NaN()), "null");
}

TEST(ToJson, OutputIsValidForAnyBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 20, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    boost::json::object object;
    object["k"] = bytes;
    const auto parsed = ParseJson(ToJson(object));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed->as_object().at("k").as_string(), ToValidUtf8(bytes));
  }
}

TEST(RawMember, ReturnsTheTextAsWritten) {
  const std::string call = R"( {"name" : "f", "arguments": {"x": 1.50, "s": "a,}\"" } , "z":1})";
  EXPECT_EQ(RawMember(call, "arguments"), R"({"x": 1.50, "s": "a,}\"" })");
  EXPECT_EQ(RawMember(call, "name"), "\"f\"");
  EXPECT_EQ(RawMember(call, "z"), "1");
  EXPECT_EQ(RawMember(call, "x"), "");
  EXPECT_EQ(RawMember("[1]", "x"), "");
  EXPECT_EQ(RawMember("{}", "x"), "");
}

TEST(Utf8Gate, OutputDoesNotDependOnTheCuts) {
  std::mt19937 random(2);
  const std::string text =
      "a\xC3\xA9\xE6\xAD\xA3\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB"
      "z"
      "\xE6\xAD\x27\xED\xA0\x80\xC0\xAF\xF4\x90\x80\x80\xFF";
  const std::string whole = ToValidUtf8(text);
  for (int round = 0; round < 500; ++round) {
    Utf8Gate gate;
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const size_t n = round == 0 ? 1 : 1 + random() % 5;
      const std::string piece = gate.Push(std::string_view(text).substr(i, n));
      EXPECT_EQ(ToValidUtf8(piece), piece);
      out += piece;
      i += n;
    }
    EXPECT_EQ(out + gate.Flush(), whole);
  }
}

}  // namespace
}  // namespace strata::gateway
