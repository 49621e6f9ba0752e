// The scanners against the regular expressions they stand for, run by PCRE2, and against examples.
#include "common/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <string>
#include <vector>

#include "common/tokenizer/testing/corpus.h"
#include "common/tokenizer/unicode_class.h"
#include "common/tokenizer/utf8.h"

namespace strata::tokenizer {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Words(SplitRule rule, std::string_view text) {
  std::vector<size_t> ends;
  SplitWords(rule, text, &ends);
  std::vector<std::string> words;
  size_t begin = 0;
  for (const size_t end : ends) {
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return words;
}

class Expression {
 public:
  explicit Expression(std::string_view pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    EXPECT_NE(code_, nullptr) << "at " << offset << " of " << pattern;
    match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }

  // Matches and what lies between them, each piece of text for itself.
  std::vector<std::string> Split(const std::vector<std::string>& pieces) const {
    std::vector<std::string> words;
    for (const std::string& piece : pieces) {
      size_t begin = 0;
      while (begin < piece.size()) {
        const int rc = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(piece.data()),
                                   piece.size(), begin, 0, match_.get(), nullptr);
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match_.get());
        const size_t first = rc < 0 ? piece.size() : range[0];
        const size_t last = rc < 0 ? piece.size() : range[1];
        if (first > begin) words.push_back(piece.substr(begin, first - begin));
        if (last > first) words.push_back(piece.substr(first, last - first));
        begin = last;
      }
    }
    return words;
  }

  // The group that matches at the start of the text, 0 if none does.
  int MatchedGroup(std::string_view text) const {
    const int rc = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                               0, PCRE2_ANCHORED, match_.get(), nullptr);
    return rc <= 0 ? 0 : rc - 1;
  }

 private:
  struct Free {
    void operator()(pcre2_code* p) const { pcre2_code_free(p); }
    void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> match_;
};

struct RuleCase {
  SplitRule rule;
  std::vector<std::string> expressions;
};

const std::vector<RuleCase>& RuleCases() {
  static const std::string kContraction = "(?:'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]))";
  static const std::string kSpaces = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const std::string kUpper = R"((?:(?=\p{L})[^a-z]))";
  static const std::string kLower = R"((?:(?=\p{L})[^A-Z]))";
  static const std::string kGpt2 =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  static const std::vector<RuleCase> cases = {
      {SplitRule::kGpt2, {kGpt2}},
      {SplitRule::kLlama3,
       {kContraction + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" +
        kSpaces}},
      {SplitRule::kQwen2,
       {kContraction + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" + kSpaces}},
      {SplitRule::kQwen35,
       {kContraction + R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" +
        kSpaces}},
      {SplitRule::kGpt4o,
       {R"([^\r\n\p{L}\p{N}]?)" + kUpper + "*" + kLower + "+" + kContraction +
        R"(?|[^\r\n\p{L}\p{N}]?)" + kUpper + "+" + kLower + "*" + kContraction +
        R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" + kSpaces}},
      {SplitRule::kDeepSeek3,
       {R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+)",
        R"([!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" +
            kSpaces}},
      {SplitRule::kDefault, {R"([\p{P}$+<=>^~|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
  };
  return cases;
}

// Debian's PCRE2 knows Unicode 14 and counts U+180E among \s; keep what both put in the same class.
std::string OnlyAgreedCharacters(std::string_view text) {
  static const Expression* const kClassOf =
      new Expression(R"((\p{L})|(\p{N})|(\p{M})|(\p{P})|(\p{S})|(\s))");
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = DecodeAt(text, i);
    const std::string_view character = text.substr(i, c.length);
    // Group 1 is kLetter, the first class after kOther, and so on.
    const auto pcre_class = static_cast<CharClass>(kClassOf->MatchedGroup(character));
    if (pcre_class == GetUnicodeClasses().Of(c.value)) out += character;
    i += c.length;
  }
  return out;
}

TEST(SplitWords, EqualsTheExpressions) {
  for (const RuleCase& rule : RuleCases()) {
    std::vector<Expression> expressions;
    for (const std::string& pattern : rule.expressions) expressions.emplace_back(pattern);
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const std::string text = OnlyAgreedCharacters(GenerateText(2000, seed, true));
      std::vector<std::string> expected = {text};
      for (const Expression& expression : expressions) expected = expression.Split(expected);
      ASSERT_EQ(Words(rule.rule, text), expected)
          << "rule " << static_cast<int>(rule.rule) << " seed " << seed;
    }
  }
}

TEST(SplitWords, Examples) {
  EXPECT_THAT(Words(SplitRule::kQwen2, "I'm  don'T\n\n x 42"),
              ElementsAre("I", "'m", " ", " don", "'T", "\n\n", " x", " ", "4", "2"));
  EXPECT_THAT(Words(SplitRule::kLlama3, "1234567 a.b\r\n"),
              ElementsAre("123", "456", "7", " a", ".b", "\r\n"));
  EXPECT_THAT(Words(SplitRule::kGpt2, "it's  1234 !?"),
              ElementsAre("it", "'s", " ", " 1234", " !?"));
  EXPECT_THAT(Words(SplitRule::kGpt4o, "HelloWORLDFoo bar's a/b//\n"),
              ElementsAre("Hello", "WORLDFoo", " bar's", " a", "/b", "//\n"));
  EXPECT_THAT(Words(SplitRule::kGpt4o, "日本ABC ÉABC"), ElementsAre("日本", "ABC", " É", "ABC"));
  EXPECT_THAT(Words(SplitRule::kDeepSeek3, "a  12345世界,b\n"),
              ElementsAre("a", "  ", "123", "45", "世界", ",b", "\n"));
  EXPECT_THAT(Words(SplitRule::kDefault, "a+b 12345"),
              ElementsAre("a", "+", "b", " ", "123", "45"));
  EXPECT_THAT(Words(SplitRule::kQwen2, "e\u0301a"), ElementsAre("e", "\u0301a"));
  EXPECT_THAT(Words(SplitRule::kQwen35, "e\u0301a"), ElementsAre("e\u0301a"));
}

// A stack per character or a scan per character would end this test by a crash or the time limit.
TEST(SplitWords, MegabytesOfOneClass) {
  for (const RuleCase& rule : RuleCases()) {
    for (const std::string_view unit : {"a", "A", " ", "\n", "!", "\x01", "1", "世", "'"}) {
      std::string text;
      while (text.size() < 2'000'000) text += unit;
      size_t total = 0;
      for (const std::string& word : Words(rule.rule, text)) total += word.size();
      ASSERT_EQ(total, text.size());
    }
  }
}

TEST(KnownPreTokenizers, HaveDistinctNames) {
  for (const PreTokenizer& known : KnownPreTokenizers()) {
    EXPECT_EQ(FindPreTokenizer(known.name)->rule, known.rule);
    EXPECT_EQ(FindPreTokenizer(known.name)->ignore_merges, known.ignore_merges) << known.name;
  }
  EXPECT_EQ(FindPreTokenizer("nothing"), std::nullopt);
}

}  // namespace
}  // namespace strata::tokenizer
