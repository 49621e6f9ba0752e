#include "common/tokenizer/token_table.h"

#include <string>

#include "common/base/status.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/token_roles.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace strata::tokenizer {
namespace {

constexpr size_t kMaxTotalBytes = size_t{1} << 28;
constexpr absl::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

uint8_t FlagOf(int32_t type) {
  switch (static_cast<TokenType>(type)) {
    case TokenType::kNormal:
      return kFlagNormal;
    case TokenType::kUnknown:
      return kFlagUnknown;
    case TokenType::kControl:
      return kFlagControl;
    case TokenType::kUserDefined:
      return kFlagUserDefined;
    case TokenType::kUnused:
      return kFlagUnused;
    case TokenType::kByte:
      return kFlagByte;
  }
  return 0;
}

// "<0x0A>" -> 10
std::optional<uint8_t> ParseByteToken(std::string_view text) {
  uint32_t value;
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>' ||
      !absl::SimpleHexAtoi(A(text.substr(3, 2)), &value)) {
    return std::nullopt;
  }
  return static_cast<uint8_t>(value);
}

// An id without which a model cannot be used as its maker meant it.
absl::Status CheckId(std::string_view name, std::optional<uint32_t> id, size_t token_count) {
  if (!id || *id < token_count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.", A(name), "_token_id = ", *id,
                                                 " is not a token: tokenizer.ggml.tokens has ",
                                                 token_count, " entries"));
}

}  // namespace

absl::StatusOr<TokenTable> TokenTable::Build(const Vocabulary& vocabulary, Spelling spelling) {
  TokenTable table;
  STRATA_RETURN_IF_ERROR(table.AddTokens(vocabulary));
  STRATA_RETURN_IF_ERROR(table.AddTypes(vocabulary));
  table.ids_ = vocabulary.ids;
  STRATA_RETURN_IF_ERROR(CheckId("bos", table.ids_.bos, table.size()));
  STRATA_RETURN_IF_ERROR(CheckId("eos", table.ids_.eos, table.size()));
  STRATA_RETURN_IF_ERROR(CheckId("eot", table.ids_.eot, table.size()));
  STRATA_RETURN_IF_ERROR(CheckId("eom", table.ids_.eom, table.size()));
  STRATA_RETURN_IF_ERROR(CheckId("unknown", table.ids_.unk, table.size()));
  // Published files carry a padding id just past the vocabulary; nothing here depends on the rest.
  for (std::optional<uint32_t> SpecialIds::*id :
       {&SpecialIds::pad, &SpecialIds::sep, &SpecialIds::mask, &SpecialIds::fim_pre,
        &SpecialIds::fim_suf, &SpecialIds::fim_mid, &SpecialIds::fim_pad, &SpecialIds::fim_rep,
        &SpecialIds::fim_sep}) {
    if (table.ids_.*id && *(table.ids_.*id) >= table.size()) (table.ids_.*id).reset();
  }
  TokenRoles roles{table.by_text_, table.flags_, table.ids_, table.end_of_generation_ids_};
  AssignRoles(roles);
  STRATA_RETURN_IF_ERROR(table.AddPieces(spelling));
  return table;
}

absl::Status TokenTable::AddTokens(const Vocabulary& vocabulary) {
  const size_t count = vocabulary.tokens.size();
  if (count == 0) return absl::InvalidArgumentError("tokenizer.ggml.tokens is empty or missing");
  if (count > kMaxTokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokenizer.ggml.tokens has ", count, " entries, more than the limit of ", kMaxTokens));
  }
  size_t total = 0;
  for (size_t id = 0; id < count; ++id) {
    const std::string_view text = vocabulary.tokens[id];
    total += text.size();
    if (text.size() > kMaxTokenBytes || total > kMaxTotalBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tokenizer.ggml.tokens[", id, "] is ", text.size(), " bytes long, ", total,
          " bytes with those before it; the limits are ", kMaxTokenBytes, " and ", kMaxTotalBytes));
    }
    // An empty text cannot be found in a text; it gets the name llama.cpp gives it.
    texts_.Add(text.empty() ? S(absl::StrCat("[EMPTY_", id, "]")) : text);
  }
  by_text_.reserve(count);
  for (uint32_t id = 0; id < count; ++id) {
    const auto [other, is_new] = by_text_.try_emplace(A(texts_[id]), id);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.tokens[", other->second,
                                                     "] and [", id, "] are both '", A(texts_[id]),
                                                     "'; token texts must differ"));
    }
  }
  return absl::OkStatus();
}

absl::Status TokenTable::AddTypes(const Vocabulary& vocabulary) {
  const size_t count = vocabulary.tokens.size();
  flags_.assign(count, kFlagNormal);
  if (vocabulary.types.empty()) return absl::OkStatus();
  if (vocabulary.types.size() < count) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.token_type has ",
                                                   vocabulary.types.size(), " entries for ", count,
                                                   " tokens"));
  }
  for (size_t id = 0; id < count; ++id) flags_[id] = FlagOf(vocabulary.types[id]);
  return absl::OkStatus();
}

absl::Status TokenTable::AddPieces(Spelling spelling) {
  for (uint32_t id = 0; id < size(); ++id) {
    const std::string_view text = Text(id);
    if ((flags_[id] & (kFlagControl | kFlagUnknown | kFlagUserDefined)) != 0) {
      pieces_.Add(text);
    } else if ((flags_[id] & kFlagByte) != 0) {
      const std::optional<uint8_t> byte = ParseByteToken(text);
      if (!byte) {
        return absl::InvalidArgumentError(
            absl::StrCat("tokenizer.ggml.tokens[", id, "] = '", A(text),
                         "' has the type 'byte' but is not of the form <0x0A>"));
      }
      const char c = static_cast<char>(*byte);
      pieces_.Add({&c, 1});
    } else if ((flags_[id] & kFlagNormal) == 0) {
      pieces_.Add("");  // unused or of unknown type: a model should never produce it
    } else if (spelling == Spelling::kSpaceMark) {
      pieces_.Add(absl::StrReplaceAll(A(text), {{kSpaceMark, " "}}));
    } else {
      // A normal token outside the alphabet cannot come from text; it stands for itself.
      pieces_.Add(AlphabetToBytes(text).value_or(std::string(text)));
    }
  }
  return absl::OkStatus();
}

std::optional<uint32_t> TokenTable::FindText(std::string_view text) const {
  const auto found = by_text_.find(A(text));
  if (found == by_text_.end()) return std::nullopt;
  return found->second;
}

}  // namespace strata::tokenizer
