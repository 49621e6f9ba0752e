#include "common/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/tokenizer/testing/corpus.h"
#include "common/tokenizer/testing/test_vocabulary.h"

namespace strata::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<Tokenizer> Build(const TestVocabulary& v) {
  auto tokenizer = Tokenizer::FromVocabulary(v.vocabulary);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::string BuildError(const TestVocabulary& v) {
  const auto tokenizer = Tokenizer::FromVocabulary(v.vocabulary);
  EXPECT_FALSE(tokenizer.ok());
  return std::string(tokenizer.status().message());
}

TEST(BytePairTokenizer, MergesByRankAndLeftmostFirst) {
  TestVocabulary v = ByteLevelVocabulary("qwen2");
  const uint32_t bc = v.Merge("b", "c");
  const uint32_t ab = v.Merge("a", "b");
  const uint32_t aa = v.Merge("a", "a");
  const auto t = Build(v);
  EXPECT_THAT(t->Encode("abc", false), ElementsAre('a', bc));
  EXPECT_THAT(t->Encode("ab", false), ElementsAre(ab));
  EXPECT_THAT(t->Encode("aaa", false), ElementsAre(aa, 'a'));
  EXPECT_THAT(t->Encode("", false), IsEmpty());
}

TEST(BytePairTokenizer, MergesStayInsideWords) {
  TestVocabulary v = ByteLevelVocabulary("qwen2");
  v.Merge("1", "2");
  const uint32_t space_a = v.Merge(" ", "a");
  const auto t = Build(v);
  EXPECT_THAT(t->Encode("12", false), ElementsAre('1', '2'));
  EXPECT_THAT(t->Encode("  a", false), ElementsAre(' ', space_a));
}

TEST(BytePairTokenizer, IgnoresMergesOnlyWhereThePreTokenizerSaysSo) {
  for (const bool ignore : {false, true}) {
    TestVocabulary v = ByteLevelVocabulary(ignore ? "llama-bpe" : "qwen2");
    const uint32_t word = v.Add("word");
    const auto t = Build(v);
    for (int repeat = 0; repeat < 3; ++repeat) {
      if (ignore) {
        EXPECT_THAT(t->Encode("word", false), ElementsAre(word));
      } else {
        EXPECT_THAT(t->Encode("word", false), ElementsAre('w', 'o', 'r', 'd'));
      }
    }
  }
}

TEST(BytePairTokenizer, LongWordsEqualShortOnes) {
  // The same merges through the short and the long path: a run of 2^k letters becomes one token.
  TestVocabulary v = ByteLevelVocabulary("qwen2");
  std::string half = "x";
  uint32_t last = 0;
  for (int k = 0; k < 8; ++k) {
    last = v.Merge(half, half);
    half += half;
  }
  const auto t = Build(v);
  EXPECT_THAT(t->Encode(half, false), ElementsAre(last));
  EXPECT_THAT(t->Encode(half + "x", false), ElementsAre(last, 'x'));
  EXPECT_EQ(t->Decode(t->Encode(std::string(1000, 'x'), false), false), std::string(1000, 'x'));
}

TEST(BytePairTokenizer, MergesThroughStringsThatAreNoTokens) {
  TestVocabulary v = ByteLevelVocabulary("qwen2");
  v.MergeOnly("a", "b");
  const uint32_t abc = v.Merge("ab", "c");
  const auto t = Build(v);
  EXPECT_THAT(t->Encode("abc", false), ElementsAre(abc));
  EXPECT_THAT(t->Encode("ab", false), ElementsAre('a', 'b'));
}

TEST(BytePairTokenizer, InvalidBytesBecomeReplacementCharacters) {
  const auto t = Build(ByteLevelVocabulary("qwen2"));
  EXPECT_EQ(t->Decode(t->Encode("a\xFFz", false), false), "a\xEF\xBF\xBDz");
  EXPECT_EQ(t->Decode(t->Encode("\xE4\xBD", false), false), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

class SpecialTokens : public ::testing::Test {
 protected:
  SpecialTokens() : v_(ByteLevelVocabulary("qwen2")) {
    control_ = v_.Add("<c>", TokenType::kControl);
    longer_ = v_.Add("<c>>", TokenType::kControl);
    user_ = v_.Add("[u]", TokenType::kUserDefined);
    t_ = Build(v_);
  }
  TestVocabulary v_;
  uint32_t control_, longer_, user_;
  std::unique_ptr<Tokenizer> t_;
};

TEST_F(SpecialTokens, ControlTokensNeedPermission) {
  EXPECT_THAT(t_->Encode("a<c>b", true), ElementsAre('a', control_, 'b'));
  EXPECT_THAT(t_->Encode("a<c>b", false), ElementsAre('a', '<', 'c', '>', 'b'));
  EXPECT_THAT(t_->Encode("<c>>", true), ElementsAre(longer_));
  EXPECT_THAT(t_->Encode("[u]<c>", false), ElementsAre(user_, '<', 'c', '>'));
}

TEST_F(SpecialTokens, UserTextCannotCompleteAControlToken) {
  const std::vector<Segment> across = {{"<c", true}, {">", false}};
  EXPECT_THAT(t_->Encode(across), ElementsAre('<', 'c', '>'));
  const std::vector<Segment> before = {{"<", false}, {"c>", true}};
  EXPECT_THAT(t_->Encode(before), ElementsAre('<', 'c', '>'));
  const std::vector<Segment> shorter = {{"<c>", true}, {">", false}};
  EXPECT_THAT(t_->Encode(shorter), ElementsAre(control_, '>'));
  const std::vector<Segment> adjacent = {{"<c", true}, {"", false}, {">", true}};
  EXPECT_THAT(t_->Encode(adjacent), ElementsAre(control_));
  const std::vector<Segment> user = {{"<c>", true}, {"<c>[u]", false}, {"<c>", true}};
  EXPECT_THAT(t_->Encode(user), ElementsAre(control_, '<', 'c', '>', user_, control_));
}

TEST_F(SpecialTokens, SegmentsAreOneText) {
  TestVocabulary v = ByteLevelVocabulary("qwen2");
  const uint32_t ab = v.Merge("a", "b");
  const auto t = Build(v);
  const std::vector<Segment> segments = {{"a", true}, {"b", false}};
  EXPECT_THAT(t->Encode(segments), ElementsAre(ab));
}

TEST(BytePairTokenizer, TextNeverMergesIntoAControlToken) {
  TestVocabulary v = ByteLevelVocabulary("qwen2");
  const uint32_t end = v.Add("stop", TokenType::kControl);
  v.Merge("s", "t");
  v.Merge("o", "p");
  v.MergeOnly("st", "op");
  const auto t = Build(v);
  EXPECT_EQ(t->Decode(t->Encode("stop", false), false), "stop");
  for (const uint32_t id : t->Encode("stop", false)) EXPECT_NE(id, end);
  EXPECT_THAT(t->Encode("stop", true), ElementsAre(end));
}

TEST(BytePairTokenizer, Errors) {
  TestVocabulary v = ByteLevelVocabulary("qwen9");
  EXPECT_THAT(BuildError(v), HasSubstr("tokenizer.ggml.pre = 'qwen9'"));
  EXPECT_THAT(BuildError(v), HasSubstr("joyai-llm"));
  v.vocabulary.model = "bert";
  EXPECT_THAT(BuildError(v), HasSubstr("tokenizer.ggml.model = 'bert'"));

  v = ByteLevelVocabulary("qwen2");
  v.vocabulary.merges.push_back("ab");
  EXPECT_THAT(BuildError(v), HasSubstr("tokenizer.ggml.merges[0] = 'ab'"));
  v.vocabulary.merges.back() = "\xE4\xBD\xA0 b";
  EXPECT_THAT(BuildError(v), HasSubstr("outside the byte-level alphabet"));

  v = ByteLevelVocabulary("qwen2");
  v.vocabulary.tokens['a'] = "aa";
  EXPECT_THAT(BuildError(v), HasSubstr("lacks 'a', the token of byte 97"));
  v.vocabulary.tokens['a'] = "b";
  EXPECT_THAT(BuildError(v), HasSubstr("tokens[97] and [98] are both 'b'"));

  v = ByteLevelVocabulary("qwen2");
  v.vocabulary.ids.eos = 256;
  EXPECT_THAT(BuildError(v), HasSubstr("tokenizer.ggml.eos_token_id = 256"));
  v.vocabulary.ids.eos.reset();
  v.vocabulary.types.pop_back();
  EXPECT_THAT(BuildError(v), HasSubstr("token_type has 255 entries"));
  v.vocabulary.types.clear();
  v.vocabulary.add_bos = true;
  EXPECT_THAT(BuildError(v), HasSubstr("bos_token_id is missing"));
  v.vocabulary.tokens.clear();
  EXPECT_THAT(BuildError(v), HasSubstr("tokenizer.ggml.tokens is empty"));
}

TEST(Roles, AreFoundByText) {
  TestVocabulary v = ByteLevelVocabulary("gpt-4o");
  const uint32_t end = v.Add("<|end|>", TokenType::kControl);
  const uint32_t ret = v.Add("<|return|>", TokenType::kControl);
  const uint32_t call = v.Add("<|call|>", TokenType::kControl);
  const uint32_t channel = v.Add("<|channel|>", TokenType::kControl);
  const auto t = Build(v);
  EXPECT_THAT(t->end_of_generation_ids(), ElementsAre(ret, call));
  EXPECT_TRUE(t->IsEndOfGeneration(ret));
  EXPECT_FALSE(t->IsEndOfGeneration(end));
  EXPECT_FALSE(t->IsControl(channel));
  EXPECT_EQ(t->Decode(std::vector<uint32_t>{channel, ret}, false), "<|channel|>");
}

TEST(Roles, PaddingOutsideTheVocabularyIsIgnored) {
  TestVocabulary v = ByteLevelVocabulary("qwen2");
  v.vocabulary.ids.pad = 256;
  EXPECT_EQ(Build(v)->pad_id(), std::nullopt);
}

TEST(Bos, IsAddedOnceWhereAsked) {
  TestVocabulary v = ByteLevelVocabulary("llama-bpe");
  const uint32_t bos = v.Add("<bos>", TokenType::kControl);
  v.vocabulary.ids.bos = bos;
  auto t = Build(v);
  EXPECT_TRUE(t->adds_bos());
  EXPECT_THAT(t->EncodeWithBos("a", true), ElementsAre(bos, 'a'));
  EXPECT_THAT(t->EncodeWithBos("<bos>a", true), ElementsAre(bos, 'a'));
  EXPECT_THAT(t->EncodeWithBos("", true), ElementsAre(bos));
  v.vocabulary.add_bos = false;
  EXPECT_THAT(Build(v)->EncodeWithBos("a", true), ElementsAre('a'));
}

TEST(FindToken, ByTextAndByPiece) {
  TestVocabulary v = ByteLevelVocabulary("qwen2");
  const uint32_t the = v.Merge(" ", "t");
  const uint32_t control = v.Add("<c>", TokenType::kControl);
  const auto t = Build(v);
  EXPECT_EQ(t->FindToken(" t"), the);
  EXPECT_EQ(t->FindToken("\xC4\xA0t"), the);
  EXPECT_EQ(t->FindToken("<c>"), control);
  EXPECT_EQ(t->FindToken("nothing"), std::nullopt);
  EXPECT_EQ(t->Piece(the), " t");
}

// A vocabulary with merges of every kind, for the properties below.
TestVocabulary RichVocabulary(std::string_view pre) {
  TestVocabulary v = ByteLevelVocabulary(pre);
  std::mt19937_64 random(7);
  const std::string text = GenerateText(20'000, 8, true);
  std::set<std::string> known;
  for (int i = 0; i < 3000; ++i) {
    // Pieces of real characters and pieces that end inside one.
    const size_t begin = random() % (text.size() - 8);
    const size_t left = 1 + random() % 3;
    const size_t right = 1 + random() % 3;
    const std::string joined = text.substr(begin, left + right);
    if (!known.insert(joined).second) continue;
    v.MergeOnly(joined.substr(0, left), joined.substr(left));
    if (v.Contains(BytesToAlphabet(joined))) continue;
    v.Add(BytesToAlphabet(joined));
  }
  v.Add("<|im_start|>", TokenType::kControl);
  v.Add("[user]", TokenType::kUserDefined);
  return v;
}

TEST(Properties, DecodeOfEncodeIsTheText) {
  for (const PreTokenizer& pre : KnownPreTokenizers()) {
    const auto t = Build(RichVocabulary(pre.name));
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const std::string text = GenerateText(1000, seed, true) + "<|im_start|>[user]";
      ASSERT_EQ(t->Decode(t->Encode(text, seed % 2 == 0), true), text) << pre.name;
    }
  }
}

TEST(Properties, SegmentsEqualTheWhole) {
  const auto t = Build(RichVocabulary("qwen2"));
  std::mt19937_64 random(9);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const bool parse_special = seed % 2 == 0;
    std::string text = GenerateText(200, seed, false);
    text.insert(random() % text.size(), "<|im_start|>[user]");
    std::vector<Segment> segments;
    for (size_t begin = 0; begin < text.size();) {
      const size_t length = random() % 30;
      segments.push_back({std::string_view(text).substr(begin, length), parse_special});
      begin += length;
    }
    ASSERT_EQ(t->Encode(segments), t->Encode(text, parse_special)) << seed;
  }
}

TEST(Properties, ThreadsGetTheSameTokens) {
  const auto t = Build(RichVocabulary("qwen2"));
  const auto fresh = Build(RichVocabulary("qwen2"));
  const std::string text = GenerateText(20'000, 10, false);
  const std::vector<uint32_t> expected = fresh->Encode(text, true);
  std::vector<std::vector<uint32_t>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = t->Encode(text, true); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

// Quadratic time would run into the time limit of the test.
TEST(Properties, VeryLongWords) {
  const auto t = Build(RichVocabulary("qwen2"));
  TestVocabulary runs = ByteLevelVocabulary("qwen2");
  runs.Merge("a", "a");
  runs.Merge("aa", "aa");
  const auto doubling = Build(runs);
  for (const std::string& word : {std::string(500'000, 'a'), GenerateText(500'000, 11, true)}) {
    // No EXPECT_EQ: it would print the difference of megabytes.
    EXPECT_TRUE(t->Decode(t->Encode(word, false), false) == word);
    EXPECT_TRUE(doubling->Decode(doubling->Encode(word, false), false) == word);
  }
}

class SentencePiece : public ::testing::Test {
 protected:
  SentencePiece() : v_(SentencePieceVocabulary()) {
    v_.Add("▁");
    for (const char* c : {"a", "b", "c"}) v_.Add(c);
    ab_ = v_.Add("ab", TokenType::kNormal, -1);
    bc_ = v_.Add("bc", TokenType::kNormal, -2);
    abc_ = v_.Add("abc", TokenType::kNormal, -3);
    space_a_ = v_.Add("▁a", TokenType::kNormal, -4);
  }
  uint32_t Byte(uint8_t byte) const { return 3u + byte; }
  uint32_t Token(std::string_view text) const { return *t_->FindToken(text); }

  TestVocabulary v_;
  uint32_t ab_, bc_, abc_, space_a_;
  std::unique_ptr<Tokenizer> t_;
};

TEST_F(SentencePiece, JoinsByScore) {
  v_.vocabulary.add_space_prefix = false;
  t_ = Build(v_);
  EXPECT_THAT(t_->Encode("abc", false), ElementsAre(abc_));
  EXPECT_THAT(t_->Encode("bc a", false), ElementsAre(bc_, space_a_));
  EXPECT_THAT(t_->Encode("abbc", false), ElementsAre(ab_, bc_));
}

TEST_F(SentencePiece, PutsASpaceInFrontAndTakesItAway) {
  t_ = Build(v_);
  EXPECT_THAT(t_->Encode("a", false), ElementsAre(space_a_));
  EXPECT_THAT(t_->EncodeWithBos("a", false), ElementsAre(1, space_a_));
  EXPECT_THAT(t_->Encode("<s>a", true), ElementsAre(1, space_a_));
  for (const std::string text : {"a", " a", "  b c", "abc\n"}) {
    EXPECT_EQ(t_->Decode(t_->Encode(text, false), false), text);
  }
}

TEST_F(SentencePiece, FallsBackToBytes) {
  v_.vocabulary.add_space_prefix = false;
  t_ = Build(v_);
  EXPECT_THAT(t_->Encode("é", false), ElementsAre(Byte(0xC3), Byte(0xA9)));
  EXPECT_THAT(t_->Encode("\xFF", false), ElementsAre(Byte(0xFF)));
  EXPECT_EQ(t_->Decode(t_->Encode("\xE4\xBD", false), false), "\xE4\xBD");
}

TEST_F(SentencePiece, TextNeverBecomesAControlToken) {
  v_.Add("<s", TokenType::kNormal, -1);
  for (const char* c : {"<", "s", ">"}) v_.Add(c);
  v_.vocabulary.add_space_prefix = false;
  t_ = Build(v_);
  EXPECT_THAT(t_->Encode("<s>", false), ElementsAre(Token("<s"), Token(">")));
  EXPECT_THAT(t_->Encode("<s>", true), ElementsAre(1));
}

TEST_F(SentencePiece, VeryLongWords) {
  v_.Add("aa", TokenType::kNormal, -1);
  t_ = Build(v_);
  const std::string word(1'000'000, 'a');
  EXPECT_TRUE(t_->Decode(t_->Encode(word, false), false) == word);
  EXPECT_EQ(t_->Encode(word, false).size(), 500'000u + 1u);
}

TEST_F(SentencePiece, Errors) {
  v_.vocabulary.scores.pop_back();
  EXPECT_THAT(BuildError(v_), HasSubstr("tokenizer.ggml.scores has"));
  v_.vocabulary.scores.push_back(std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(BuildError(v_), HasSubstr("is not a number"));
  v_.vocabulary.scores.back() = 0;
  v_.vocabulary.tokens[3 + 10] = "<0x0A";
  EXPECT_THAT(BuildError(v_), HasSubstr("not of the form <0x0A>"));
  v_.vocabulary.types[3 + 10] = 1;
  EXPECT_THAT(BuildError(v_), HasSubstr("lacks '<0x0A>'"));
}

}  // namespace
}  // namespace strata::tokenizer
