// Small vocabularies for this folder's tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/vocabulary.h"

#include "absl/strings/str_format.h"

namespace strata::tokenizer {

// Owns the strings that a Vocabulary only borrows.
class TestVocabulary {
 public:
  uint32_t Add(std::string_view text, TokenType type = TokenType::kNormal, float score = 0) {
    strings_.emplace_back(text);
    vocabulary.tokens.push_back(strings_.back());
    vocabulary.types.push_back(static_cast<int32_t>(type));
    vocabulary.scores.push_back(score);
    return static_cast<uint32_t>(vocabulary.tokens.size() - 1);
  }

  // A merge of two strings of bytes, and its result as a token.
  uint32_t Merge(std::string_view left, std::string_view right) {
    MergeOnly(left, right);
    return Add(BytesToAlphabet(std::string(left).append(right)));
  }
  void MergeOnly(std::string_view left, std::string_view right) {
    strings_.push_back(BytesToAlphabet(left) + " " + BytesToAlphabet(right));
    vocabulary.merges.push_back(strings_.back());
  }

  bool Contains(std::string_view text) const {
    return std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), text) !=
           vocabulary.tokens.end();
  }

  Vocabulary vocabulary;

 private:
  std::deque<std::string> strings_;
};

// Tokens 0 to 255 are the bytes in order.
inline TestVocabulary ByteLevelVocabulary(std::string_view pre) {
  TestVocabulary v;
  v.vocabulary.model = "gpt2";
  v.vocabulary.pre = pre;
  for (int byte = 0; byte < 256; ++byte) v.Add(ByteToAlphabet(static_cast<uint8_t>(byte)));
  return v;
}

// Tokens 0 to 2 are <unk>, <s> and </s>, 3 to 258 the bytes.
inline TestVocabulary SentencePieceVocabulary() {
  TestVocabulary v;
  v.vocabulary.model = "llama";
  v.Add("<unk>", TokenType::kUnknown);
  v.Add("<s>", TokenType::kControl);
  v.Add("</s>", TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) v.Add(absl::StrFormat("<0x%02X>", byte), TokenType::kByte);
  return v;
}

}  // namespace strata::tokenizer
