// Tokenizer::FromGguf: the metadata keys of a vocabulary.
#include <algorithm>
#include <limits>
#include <string>

#include "common/base/status.h"
#include "common/gguf/metadata.h"
#include "common/tokenizer/tokenizer.h"

#include "absl/strings/str_cat.h"

namespace strata::tokenizer {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

std::string Key(std::string_view name) { return absl::StrCat(A(kPrefix), A(name)); }

absl::Status CheckLength(const gguf::Metadata& metadata, std::string_view name, size_t limit) {
  const gguf::Value* value = metadata.Find(Key(name));
  if (value == nullptr || value->size() <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Key(name), " has ", value->size(), " entries, more than the limit of ", limit));
}

// Ids are unsigned in the format, but -1 is found in files and means "none".
absl::Status ReadId(const gguf::Metadata& metadata, std::string_view name,
                    std::optional<uint32_t>* id) {
  const std::string key = Key(name);
  const gguf::Value* value = metadata.Find(key);
  if (value == nullptr) return absl::OkStatus();
  const std::optional<int64_t> number = value->AsInt();
  if (!number || *number > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, number ? absl::StrCat(" = ", *number) : "", " is not a token id"));
  }
  if (*number < 0 || *number == std::numeric_limits<uint32_t>::max()) return absl::OkStatus();
  *id = static_cast<uint32_t>(*number);
  return absl::OkStatus();
}

absl::Status ReadIds(const gguf::Metadata& metadata, SpecialIds* ids) {
  const struct {
    std::string_view name;
    std::optional<uint32_t> SpecialIds::*id;
  } keys[] = {
      // The short names of the infill tokens are older than the long ones.
      {"prefix_token_id", &SpecialIds::fim_pre},  {"suffix_token_id", &SpecialIds::fim_suf},
      {"middle_token_id", &SpecialIds::fim_mid},  {"bos_token_id", &SpecialIds::bos},
      {"eos_token_id", &SpecialIds::eos},         {"eot_token_id", &SpecialIds::eot},
      {"eom_token_id", &SpecialIds::eom},         {"unknown_token_id", &SpecialIds::unk},
      {"padding_token_id", &SpecialIds::pad},     {"seperator_token_id", &SpecialIds::sep},
      {"mask_token_id", &SpecialIds::mask},       {"fim_pre_token_id", &SpecialIds::fim_pre},
      {"fim_suf_token_id", &SpecialIds::fim_suf}, {"fim_mid_token_id", &SpecialIds::fim_mid},
      {"fim_pad_token_id", &SpecialIds::fim_pad}, {"fim_rep_token_id", &SpecialIds::fim_rep},
      {"fim_sep_token_id", &SpecialIds::fim_sep},
  };
  for (const auto& key : keys) {
    STRATA_RETURN_IF_ERROR(ReadId(metadata, key.name, &(ids->*key.id)));
  }
  return absl::OkStatus();
}

absl::Status ReadBool(const gguf::Metadata& metadata, std::string_view name,
                      std::optional<bool>* out) {
  if (metadata.Find(Key(name)) == nullptr) return absl::OkStatus();
  STRATA_ASSIGN_OR_RETURN(*out, metadata.GetBool(Key(name)));
  return absl::OkStatus();
}

absl::StatusOr<Vocabulary> ReadVocabulary(const gguf::Metadata& metadata) {
  Vocabulary v;
  STRATA_RETURN_IF_ERROR(CheckLength(metadata, "tokens", kMaxTokens));
  STRATA_RETURN_IF_ERROR(CheckLength(metadata, "token_type", kMaxTokens));
  STRATA_RETURN_IF_ERROR(CheckLength(metadata, "scores", kMaxTokens));
  STRATA_RETURN_IF_ERROR(CheckLength(metadata, "merges", kMaxMerges));
  STRATA_ASSIGN_OR_RETURN(v.model, metadata.GetString(Key("model")));
  STRATA_ASSIGN_OR_RETURN(v.pre, metadata.GetString(Key("pre"), ""));
  STRATA_ASSIGN_OR_RETURN(v.tokens, metadata.GetStrings(Key("tokens")));
  if (metadata.Find(Key("token_type")) != nullptr) {
    STRATA_ASSIGN_OR_RETURN(const std::vector<int64_t> types, metadata.GetInts(Key("token_type")));
    v.types.reserve(types.size());
    // Values outside the enumeration are kept out of it.
    for (const int64_t type : types) v.types.push_back(type >= 0 && type < 100 ? type : 0);
  }
  if (v.model == "llama") {
    STRATA_ASSIGN_OR_RETURN(const std::vector<double> scores, metadata.GetFloats(Key("scores")));
    v.scores.assign(scores.begin(), scores.end());
  } else {
    STRATA_ASSIGN_OR_RETURN(v.merges, metadata.GetStrings(Key("merges")));
  }
  STRATA_RETURN_IF_ERROR(ReadIds(metadata, &v.ids));
  STRATA_RETURN_IF_ERROR(ReadBool(metadata, "add_bos_token", &v.add_bos));
  STRATA_RETURN_IF_ERROR(ReadBool(metadata, "add_space_prefix", &v.add_space_prefix));
  return v;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromGguf(const gguf::Metadata& metadata) {
  STRATA_ASSIGN_OR_RETURN(const Vocabulary vocabulary, ReadVocabulary(metadata));
  return FromVocabulary(vocabulary);
}

}  // namespace strata::tokenizer
