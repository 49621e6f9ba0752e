#include "common/tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace strata::tokenizer {
namespace {

std::string Marks(std::string_view bytes) {  // '.' = one U+FFFD
  std::string out;
  const std::string text = LossyUtf8(bytes);
  for (size_t i = 0; i < text.size();) {
    if (text.compare(i, 3, kReplacementCharacter) == 0) {
      out += '.';
      i += 3;
    } else {
      out += text[i++];
    }
  }
  return out;
}

// Tables 3-8 to 3-11 of the Unicode standard ("substitution of maximal subparts").
TEST(LossyUtf8, FollowsTheUnicodeStandard) {
  EXPECT_EQ(Marks("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), "........A");
  EXPECT_EQ(Marks("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), "........A");
  EXPECT_EQ(Marks("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), ".....A..B");
  EXPECT_EQ(Marks("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "....A");
}

// Appends what a decoder that looks at the definition (table 3-7) would: try each valid form.
std::string SlowLossy(std::string_view bytes) {
  struct Form {
    int length;
    uint8_t low[4], high[4];
  };
  static constexpr Form kForms[] = {
      {1, {0x00}, {0x7F}},
      {2, {0xC2, 0x80}, {0xDF, 0xBF}},
      {3, {0xE0, 0xA0, 0x80}, {0xE0, 0xBF, 0xBF}},
      {3, {0xE1, 0x80, 0x80}, {0xEC, 0xBF, 0xBF}},
      {3, {0xED, 0x80, 0x80}, {0xED, 0x9F, 0xBF}},
      {3, {0xEE, 0x80, 0x80}, {0xEF, 0xBF, 0xBF}},
      {4, {0xF0, 0x90, 0x80, 0x80}, {0xF0, 0xBF, 0xBF, 0xBF}},
      {4, {0xF1, 0x80, 0x80, 0x80}, {0xF3, 0xBF, 0xBF, 0xBF}},
      {4, {0xF4, 0x80, 0x80, 0x80}, {0xF4, 0x8F, 0xBF, 0xBF}},
  };
  std::string out;
  for (size_t i = 0; i < bytes.size();) {
    size_t best = 0;  // longest prefix of any form
    bool whole = false;
    for (const Form& form : kForms) {
      size_t n = 0;
      while (n < static_cast<size_t>(form.length) && i + n < bytes.size() &&
             static_cast<uint8_t>(bytes[i + n]) >= form.low[n] &&
             static_cast<uint8_t>(bytes[i + n]) <= form.high[n]) {
        ++n;
      }
      if (n > best) {
        best = n;
        whole = n == static_cast<size_t>(form.length);
      }
    }
    out += whole ? bytes.substr(i, best) : kReplacementCharacter;
    i += best == 0 ? 1 : best;
  }
  return out;
}

TEST(LossyUtf8, EqualsTheDefinition) {
  std::mt19937_64 random(1);
  static constexpr uint8_t kBytes[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                       0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
                                       0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFF};
  for (int i = 0; i < 200'000; ++i) {
    std::string bytes;
    for (size_t n = random() % 9; n > 0; --n) {
      bytes += static_cast<char>(kBytes[random() % std::size(kBytes)]);
    }
    ASSERT_EQ(LossyUtf8(bytes), SlowLossy(bytes));
  }
}

TEST(RepairUtf8, LeavesWellFormedTextAlone) {
  EXPECT_EQ(RepairUtf8(""), std::nullopt);
  EXPECT_EQ(RepairUtf8("plain and long enough for eight bytes at a time"), std::nullopt);
  EXPECT_EQ(RepairUtf8("é 世界 🎉\xF4\x8F\xBF\xBF"), std::nullopt);
  EXPECT_EQ(RepairUtf8("\xED\xA0\x80"), std::nullopt);  // surrogates stay
}

TEST(RepairUtf8, ReplacesEachStrayByte) {
  EXPECT_EQ(RepairUtf8("abcdefgh\xFFz"), "abcdefgh\xEF\xBF\xBDz");
  EXPECT_EQ(RepairUtf8("\xE4\xBD!"), "\xEF\xBF\xBD\xEF\xBF\xBD!");
  EXPECT_EQ(RepairUtf8("\x80"), "\xEF\xBF\xBD");
  const std::string above("\xF4\x90\x80\x80", 4);
  EXPECT_EQ(LossyUtf8(*RepairUtf8(above)), *RepairUtf8(above));
  EXPECT_EQ(RepairUtf8(above)->size(), 12u);
}

TEST(RepairUtf8, ReadsOverlongForms) {
  EXPECT_EQ(RepairUtf8("\xC1\x81"), "A");
  EXPECT_EQ(RepairUtf8("\xE0\x81\x81"), "A");
  EXPECT_EQ(RepairUtf8("\xF0\x80\x81\x81"), "A");
}

TEST(AppendUtf8, RoundTripsEveryCodePoint) {
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    std::string text;
    AppendUtf8(c, &text);
    const CodePoint decoded = DecodeAt(text, 0);
    ASSERT_EQ(decoded.value, c);
    ASSERT_EQ(decoded.length, text.size());
    ASSERT_EQ(StepUtf8(text, 0).valid, c < 0xD800 || c > 0xDFFF) << c;
  }
}

}  // namespace
}  // namespace strata::tokenizer
