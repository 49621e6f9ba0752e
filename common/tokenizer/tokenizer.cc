#include "common/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/tokenizer/utf8.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace strata::tokenizer {
namespace {

std::string KnownPreNames() {
  return absl::StrJoin(KnownPreTokenizers(), ", ",
                       [](std::string* out, const PreTokenizer& p) { out->append(p.name); });
}

}  // namespace

Tokenizer::Tokenizer(TokenTable tokens) : tokens_(std::move(tokens)), specials_(tokens_) {}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromVocabulary(const Vocabulary& vocabulary) {
  const bool byte_pair = vocabulary.model == "gpt2";
  if (!byte_pair && vocabulary.model != "llama") {
    return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.model = '", A(vocabulary.model),
                                                 "' is not supported; known are: gpt2, llama"));
  }
  std::optional<PreTokenizer> pre;
  if (byte_pair) {
    pre = FindPreTokenizer(vocabulary.pre.empty() ? "default" : vocabulary.pre);
    if (!pre) {
      return absl::UnimplementedError(
          absl::StrCat("tokenizer.ggml.pre = '", A(vocabulary.pre),
                       "' is not supported; known are: ", KnownPreNames()));
    }
  }
  Vocabulary with_defaults = vocabulary;
  if (!byte_pair) {
    // Files of Llama-1 and -2 rely on these.
    const size_t count = vocabulary.tokens.size();
    if (!vocabulary.ids.bos && count > 1) with_defaults.ids.bos = 1;
    if (!vocabulary.ids.eos && count > 2) with_defaults.ids.eos = 2;
    if (!vocabulary.ids.unk && count > 0) with_defaults.ids.unk = 0;
  }
  absl::StatusOr<TokenTable> tokens =
      TokenTable::Build(with_defaults, byte_pair ? Spelling::kByteAlphabet : Spelling::kSpaceMark);
  if (!tokens.ok()) return tokens.status();
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(*std::move(tokens)));
  STRATA_RETURN_IF_ERROR(byte_pair ? tokenizer->BuildBytePair(vocabulary, *pre)
                                   : tokenizer->BuildSentencePiece(vocabulary));
  return tokenizer;
}

absl::Status Tokenizer::BuildBytePair(const Vocabulary& vocabulary, const PreTokenizer& pre) {
  STRATA_ASSIGN_OR_RETURN(byte_pair_,
                          BytePairEncoder::Build(tokens_, vocabulary.merges, pre.ignore_merges));
  split_rule_ = pre.rule;
  return SetBos(vocabulary.add_bos, pre.add_bos);
}

absl::Status Tokenizer::BuildSentencePiece(const Vocabulary& vocabulary) {
  STRATA_ASSIGN_OR_RETURN(sentence_piece_, SentencePieceEncoder::Build(tokens_, vocabulary.scores));
  add_space_prefix_ = vocabulary.add_space_prefix.value_or(true);
  return SetBos(vocabulary.add_bos, true);
}

absl::Status Tokenizer::SetBos(std::optional<bool> asked, bool by_default) {
  adds_bos_ = asked.value_or(by_default) && bos_id().has_value();
  if (asked.value_or(false) && !adds_bos_) {
    return absl::InvalidArgumentError(
        "tokenizer.ggml.add_bos_token is true but tokenizer.ggml.bos_token_id is missing");
  }
  return absl::OkStatus();
}

std::vector<uint32_t> Tokenizer::Encode(std::string_view text, bool parse_special) const {
  const TextRange all{0, text.size()};
  return Encode(text, std::span<const TextRange>(&all, parse_special ? 1 : 0));
}

std::vector<uint32_t> Tokenizer::Encode(std::span<const Segment> segments) const {
  if (segments.size() == 1) return Encode(segments[0].text, segments[0].parse_special);
  std::string text;
  std::vector<TextRange> control;
  for (const Segment& segment : segments) {
    const size_t begin = text.size();
    text += segment.text;
    if (!segment.parse_special || segment.text.empty()) continue;
    if (!control.empty() && control.back().end == begin) {
      control.back().end = text.size();
    } else {
      control.push_back({begin, text.size()});
    }
  }
  return Encode(text, control);
}

std::vector<uint32_t> Tokenizer::Encode(std::string_view text,
                                        std::span<const TextRange> control) const {
  std::vector<uint32_t> ids;
  size_t begin = 0;
  bool after_special = true;  // the start counts as one
  for (const SpecialMatch& match : specials_.Find(text, control)) {
    if (match.begin > begin) {
      EncodeText(text.substr(begin, match.begin - begin), after_special, &ids);
    }
    ids.push_back(match.id);
    begin = match.begin + match.length;
    after_special = true;
  }
  if (begin < text.size()) EncodeText(text.substr(begin), after_special, &ids);
  return ids;
}

void Tokenizer::EncodeText(std::string_view text, bool after_special,
                           std::vector<uint32_t>* ids) const {
  if (sentence_piece_ != nullptr) {
    sentence_piece_->Encode(text, add_space_prefix_ && after_special, ids);
    return;
  }
  const std::optional<std::string> repaired = RepairUtf8(text);
  if (repaired) text = *repaired;
  std::vector<size_t> ends;
  SplitWords(split_rule_, text, &ends);
  size_t begin = 0;
  for (const size_t end : ends) {
    byte_pair_->EncodeWord(text.substr(begin, end - begin), ids);
    begin = end;
  }
}

std::vector<uint32_t> Tokenizer::EncodeWithBos(std::string_view text, bool parse_special) const {
  return WithBos(Encode(text, parse_special));
}

std::vector<uint32_t> Tokenizer::EncodeWithBos(std::span<const Segment> segments) const {
  return WithBos(Encode(segments));
}

std::vector<uint32_t> Tokenizer::WithBos(std::vector<uint32_t> ids) const {
  if (adds_bos_ && (ids.empty() || ids.front() != *bos_id())) ids.insert(ids.begin(), *bos_id());
  return ids;
}

std::string Tokenizer::Decode(std::span<const uint32_t> ids, bool render_control) const {
  std::string text;
  bool strip_space = add_space_prefix_;
  for (const uint32_t id : ids) {
    if (id >= vocab_size()) continue;
    std::string_view piece = Piece(id);
    if (IsControl(id)) {
      if (!render_control) continue;
    } else {
      if (strip_space && piece.substr(0, 1) == " ") piece.remove_prefix(1);
      strip_space = false;
    }
    text += piece;
  }
  return text;
}

bool Tokenizer::IsEndOfGeneration(uint32_t id) const {
  const std::span<const uint32_t> ids = end_of_generation_ids();
  return std::binary_search(ids.begin(), ids.end(), id);
}

std::optional<uint32_t> Tokenizer::FindToken(std::string_view text) const {
  if (const std::optional<uint32_t> id = tokens_.FindText(text)) return id;
  return byte_pair_ != nullptr ? byte_pair_->FindWord(text) : sentence_piece_->FindPiece(text);
}

}  // namespace strata::tokenizer
