// Text to tokens and back, for the vocabulary of a GGUF file.
//
// Token sequences equal llama.cpp's (whose readers the files are made for), with these intended
// differences: text outside `parse_special` never becomes a control token, not even by way of
// merges; nothing is lost where a vocabulary is incomplete. Like llama.cpp, no Unicode
// normalisation (NFC) is applied, which the Python tokenizers of some models (Qwen) do.
//
// Everything is const after construction and safe to use from several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/gguf/metadata.h"
#include "common/tokenizer/byte_pair_encoder.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/sentence_piece_encoder.h"
#include "common/tokenizer/special_matcher.h"
#include "common/tokenizer/token_table.h"
#include "common/tokenizer/vocabulary.h"

#include "absl/status/statusor.h"

namespace strata::tokenizer {

// Part of a prompt: what a template wrote (parse_special) or what a user wrote (not).
struct Segment {
  std::string_view text;
  bool parse_special = false;
};

class Tokenizer {
 public:
  // Reads the keys `tokenizer.ggml.*` (listed in vocabulary.h). Errors name the key and value at
  // fault, and the known names where a name is unknown. `metadata` is not needed afterwards.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromGguf(const gguf::Metadata& metadata);
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromVocabulary(const Vocabulary& vocabulary);

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The tokens of a text below 4 GiB, without begin-of-sequence. Any bytes are accepted: under
  // byte-level BPE each byte that is not part of a UTF-8 character becomes U+FFFD. User-defined
  // tokens are recognised anywhere, control tokens only with parse_special.
  std::vector<uint32_t> Encode(std::string_view text, bool parse_special) const;

  // The tokens of the concatenated text: where a segment ends does not show in the tokens, except
  // that control tokens are recognised only within (adjacent) parse_special segments.
  std::vector<uint32_t> Encode(std::span<const Segment> segments) const;

  // The same with the begin-of-sequence token in front, if the model asks for one (adds_bos) and
  // the text does not start with it already.
  std::vector<uint32_t> EncodeWithBos(std::string_view text, bool parse_special) const;
  std::vector<uint32_t> EncodeWithBos(std::span<const Segment> segments) const;

  // The bytes a token stands for; not always whole UTF-8 characters. A control token gives its
  // text, an unused one nothing. The view lives as long as the tokenizer. `id` must be below
  // vocab_size().
  std::string_view Piece(uint32_t id) const { return tokens_.Piece(id); }

  // The bytes of a sequence; ids outside the vocabulary are skipped. Control tokens appear by their
  // text if `render_control`, else not at all. The space that encoding puts in front of the first
  // word of some vocabularies is taken away again; so this is for whole texts, and StreamDecoder
  // for what a model generates.
  std::string Decode(std::span<const uint32_t> ids, bool render_control) const;

  size_t vocab_size() const { return tokens_.size(); }
  bool IsControl(uint32_t id) const { return id < vocab_size() && tokens_.IsControl(id); }
  bool IsEndOfGeneration(uint32_t id) const;
  std::span<const uint32_t> end_of_generation_ids() const {
    return tokens_.end_of_generation_ids();
  }
  const SpecialIds& special_ids() const { return tokens_.ids(); }
  std::optional<uint32_t> bos_id() const { return tokens_.ids().bos; }
  std::optional<uint32_t> eos_id() const { return tokens_.ids().eos; }
  std::optional<uint32_t> eot_id() const { return tokens_.ids().eot; }
  std::optional<uint32_t> pad_id() const { return tokens_.ids().pad; }
  bool adds_bos() const { return adds_bos_; }

  // The token with this text as the vocabulary spells it ("<|im_start|>"), or else the one whose
  // piece is exactly these bytes (" the").
  std::optional<uint32_t> FindToken(std::string_view text) const;

 private:
  explicit Tokenizer(TokenTable tokens);
  absl::Status BuildBytePair(const Vocabulary& vocabulary, const PreTokenizer& pre);
  absl::Status BuildSentencePiece(const Vocabulary& vocabulary);
  absl::Status SetBos(std::optional<bool> asked, bool by_default);
  std::vector<uint32_t> Encode(std::string_view text, std::span<const TextRange> control) const;
  void EncodeText(std::string_view text, bool after_special, std::vector<uint32_t>* ids) const;
  std::vector<uint32_t> WithBos(std::vector<uint32_t> ids) const;

  TokenTable tokens_;
  SpecialMatcher specials_;
  // Exactly one of the two, and split_rule_ with the first.
  std::unique_ptr<BytePairEncoder> byte_pair_;
  std::unique_ptr<SentencePieceEncoder> sentence_piece_;
  SplitRule split_rule_ = SplitRule::kDefault;
  bool add_space_prefix_ = false;
  bool adds_bos_ = false;
};

}  // namespace strata::tokenizer
