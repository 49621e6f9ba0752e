#include "common/tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/tokenizer/testing/test_vocabulary.h"
#include "common/tokenizer/utf8.h"

namespace strata::tokenizer {
namespace {

class StreamDecoderTest : public ::testing::Test {
 protected:
  StreamDecoderTest() {
    TestVocabulary v = ByteLevelVocabulary("qwen2");
    control_ = v.Add("<c>", TokenType::kControl);
    split_ = v.Merge("x\xE4\xBD", "\xA0\xF0");  // ends one character, begins the next
    tokenizer_ = *Tokenizer::FromVocabulary(v.vocabulary);
  }
  std::vector<uint32_t> Bytes(std::string_view bytes) const {
    std::vector<uint32_t> ids;
    for (const char c : bytes) ids.push_back(static_cast<uint8_t>(c));
    return ids;
  }
  uint32_t control_, split_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(StreamDecoderTest, HoldsBackHalfACharacter) {
  StreamDecoder decoder(*tokenizer_, false);
  EXPECT_EQ(decoder.Push('a'), "a");
  EXPECT_EQ(decoder.Push(0xE4), "");
  EXPECT_EQ(decoder.Push(0xBD), "");
  EXPECT_EQ(decoder.pending_bytes(), 2u);
  EXPECT_EQ(decoder.Push(0xA0), "你");
  EXPECT_EQ(decoder.Push(split_), "x你");
  EXPECT_EQ(decoder.pending_bytes(), 1u);
  EXPECT_EQ(decoder.Finish(), kReplacementCharacter);
  EXPECT_EQ(decoder.Finish(), "");
  EXPECT_EQ(decoder.Push('b'), "b");
}

TEST_F(StreamDecoderTest, ReplacesWhatCannotBecomeACharacter) {
  StreamDecoder decoder(*tokenizer_, false);
  EXPECT_EQ(decoder.Push(0xFF), kReplacementCharacter);
  EXPECT_EQ(decoder.Push(0xE4), "");
  EXPECT_EQ(decoder.Push('a'), std::string(kReplacementCharacter) + "a");
}

TEST_F(StreamDecoderTest, ControlTokensAreRenderedOnlyWhenAsked) {
  StreamDecoder hidden(*tokenizer_, false);
  StreamDecoder shown(*tokenizer_, true);
  EXPECT_EQ(hidden.Push(control_), "");
  EXPECT_EQ(shown.Push(control_), "<c>");
  EXPECT_EQ(shown.Push(1'000'000), "");
}

TEST_F(StreamDecoderTest, EqualsTheDecodeOfTheWhole) {
  std::mt19937_64 random(1);
  static constexpr uint8_t kBytes[] = {'a',  0x80, 0x9F, 0xA0, 0xBD, 0xC2, 0xE0, 0xE4,
                                       0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF, 0x90, 0x8F};
  for (int round = 0; round < 50'000; ++round) {
    std::vector<uint32_t> ids;
    for (size_t n = random() % 12; n > 0; --n) {
      const size_t pick = random() % (std::size(kBytes) + 2);
      if (pick == 0) {
        ids.push_back(split_);
      } else if (pick == 1) {
        ids.push_back(control_);
      } else {
        ids.push_back(kBytes[pick - 2]);
      }
    }
    const bool render = round % 2 == 0;
    StreamDecoder decoder(*tokenizer_, render);
    std::string text;
    for (const uint32_t id : ids) {
      const std::string part = decoder.Push(id);
      ASSERT_EQ(LossyUtf8(part), part);  // whole characters only
      ASSERT_LE(decoder.pending_bytes(), 3u);
      text += part;
    }
    text += decoder.Finish();
    ASSERT_EQ(text, LossyUtf8(tokenizer_->Decode(ids, render)));
  }
}

}  // namespace
}  // namespace strata::tokenizer
