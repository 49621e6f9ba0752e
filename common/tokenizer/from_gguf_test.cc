#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/gguf/reader.h"
#include "common/gguf/writer.h"
#include "common/tokenizer/testing/test_vocabulary.h"
#include "common/tokenizer/tokenizer.h"

#include "absl/strings/str_cat.h"

namespace strata::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes a file with the keys that `fill` sets, and reads the tokenizer from it.
absl::StatusOr<std::unique_ptr<Tokenizer>> FromFile(
    const std::function<void(gguf::Writer&)>& fill) {
  const std::string path = absl::StrCat(::testing::TempDir(), "strata-from-gguf-", getpid());
  auto writer = gguf::Writer::Create(path);
  EXPECT_TRUE(writer.ok()) << writer.status();
  fill(*writer);
  const absl::Status finished = writer->Finish();
  EXPECT_TRUE(finished.ok()) << finished;
  auto model = gguf::Model::Open(path);
  std::filesystem::remove(path);
  EXPECT_TRUE(model.ok()) << model.status();
  // The tokenizer must not need the file any more once it is built: the model goes away here.
  return Tokenizer::FromGguf((*model)->metadata());
}

std::vector<std::string> Strings(const std::vector<std::string_view>& views) {
  return {views.begin(), views.end()};
}

void SetBytePair(gguf::Writer& writer) {
  TestVocabulary v = ByteLevelVocabulary("qwen35");
  v.Merge("a", "b");
  v.Add("<|im_end|>", TokenType::kControl);
  writer.Set("tokenizer.ggml.model", std::string("gpt2"));
  writer.Set("tokenizer.ggml.pre", std::string("qwen35"));
  writer.Set("tokenizer.ggml.tokens", Strings(v.vocabulary.tokens));
  writer.Set("tokenizer.ggml.token_type", v.vocabulary.types);
  writer.Set("tokenizer.ggml.merges", Strings(v.vocabulary.merges));
}

TEST(FromGguf, BytePair) {
  const auto t = FromFile([](gguf::Writer& writer) {
    SetBytePair(writer);
    writer.Set("tokenizer.ggml.bos_token_id", uint32_t{257});
    writer.Set("tokenizer.ggml.eos_token_id", uint32_t{257});
    writer.Set("tokenizer.ggml.padding_token_id", int32_t{-1});
    writer.Set("tokenizer.ggml.add_bos_token", true);
  });
  ASSERT_TRUE(t.ok()) << t.status();
  EXPECT_THAT((*t)->EncodeWithBos("abc<|im_end|>", true), ElementsAre(257, 256, 'c', 257));
  EXPECT_EQ((*t)->eos_id(), 257u);
  EXPECT_EQ((*t)->pad_id(), std::nullopt);
  EXPECT_TRUE((*t)->IsEndOfGeneration(257));
}

TEST(FromGguf, SentencePiece) {
  const auto t = FromFile([](gguf::Writer& writer) {
    TestVocabulary v = SentencePieceVocabulary();
    v.Add("▁a", TokenType::kNormal, -1);
    v.Add("▁");
    v.Add("a");
    writer.Set("tokenizer.ggml.model", std::string("llama"));
    writer.Set("tokenizer.ggml.tokens", Strings(v.vocabulary.tokens));
    writer.Set("tokenizer.ggml.token_type", v.vocabulary.types);
    writer.Set("tokenizer.ggml.scores", v.vocabulary.scores);
  });
  ASSERT_TRUE(t.ok()) << t.status();
  EXPECT_THAT((*t)->EncodeWithBos("a", true), ElementsAre(1, 259));
}

TEST(FromGguf, ErrorsNameTheKey) {
  const auto error = [](const std::function<void(gguf::Writer&)>& fill) {
    return std::string(FromFile(fill).status().message());
  };
  EXPECT_THAT(error([](gguf::Writer&) {}), HasSubstr("tokenizer.ggml.model"));
  EXPECT_THAT(error([](gguf::Writer& w) { w.Set("tokenizer.ggml.model", std::string("gpt2")); }),
              HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(error([](gguf::Writer& w) {
                SetBytePair(w);
                w.Set("tokenizer.ggml.eos_token_id", std::string("257"));
              }),
              HasSubstr("tokenizer.ggml.eos_token_id"));
  EXPECT_THAT(error([](gguf::Writer& w) {
                SetBytePair(w);
                w.Set("tokenizer.ggml.eos_token_id", uint64_t{1} << 40);
              }),
              HasSubstr("tokenizer.ggml.eos_token_id = 1099511627776"));
  EXPECT_THAT(error([](gguf::Writer& w) {
                SetBytePair(w);
                w.Set("tokenizer.ggml.add_bos_token", std::string("yes"));
              }),
              HasSubstr("tokenizer.ggml.add_bos_token"));
  EXPECT_THAT(error([](gguf::Writer& w) {
                w.Set("tokenizer.ggml.model", std::string("gpt2"));
                w.Set("tokenizer.ggml.tokens", std::vector<int32_t>{1, 2});
              }),
              HasSubstr("tokenizer.ggml.tokens"));
}

}  // namespace
}  // namespace strata::tokenizer
