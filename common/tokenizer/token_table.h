// The tokens of a vocabulary by id: their text as the file spells it, the bytes they stand for,
// what kind they are, and which of them have a role. Immutable once built, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/tokenizer/vocabulary.h"

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace strata::tokenizer {

// A token may have several: llama.cpp adds kControl to a normal token that ends a generation.
enum TokenFlag : uint8_t {
  kFlagNormal = 1,
  kFlagUnknown = 2,
  kFlagControl = 4,
  kFlagUserDefined = 8,
  kFlagUnused = 16,
  kFlagByte = 32,
};

// How token texts spell bytes.
enum class Spelling : uint8_t {
  kByteAlphabet,  // byte-level BPE: GPT-2's alphabet
  kSpaceMark,     // SentencePiece: U+2581 for a space, "<0x0A>" for a byte
};

class TokenTable {
 public:
  // Checks the tokens, types, scores and ids; an error names the metadata key and the value.
  static absl::StatusOr<TokenTable> Build(const Vocabulary& vocabulary, Spelling spelling);

  size_t size() const { return flags_.size(); }
  std::string_view Text(uint32_t id) const { return texts_[id]; }
  std::string_view Piece(uint32_t id) const { return pieces_[id]; }
  uint8_t flags(uint32_t id) const { return flags_[id]; }
  // Control and unknown tokens: ordinary text must never become one of them.
  bool IsControl(uint32_t id) const { return (flags_[id] & (kFlagControl | kFlagUnknown)) != 0; }
  std::optional<uint32_t> FindText(std::string_view text) const;

  const SpecialIds& ids() const { return ids_; }
  std::span<const uint32_t> end_of_generation_ids() const { return end_of_generation_ids_; }

 private:
  // Strings one after another. Not std::string: by_text_ points into it, and a short std::string
  // moves its characters with itself.
  struct Blob {
    std::vector<char> bytes;
    std::vector<uint32_t> ends;

    void Add(std::string_view s) {
      bytes.insert(bytes.end(), s.begin(), s.end());
      ends.push_back(static_cast<uint32_t>(bytes.size()));
    }
    std::string_view operator[](uint32_t i) const {
      const uint32_t begin = i == 0 ? 0 : ends[i - 1];
      return {bytes.data() + begin, ends[i] - begin};
    }
  };
  absl::Status AddTokens(const Vocabulary& vocabulary);
  absl::Status AddTypes(const Vocabulary& vocabulary);
  absl::Status AddPieces(Spelling spelling);

  Blob texts_, pieces_;
  std::vector<uint8_t> flags_;
  absl::flat_hash_map<absl::string_view, uint32_t> by_text_;  // views into texts_
  SpecialIds ids_;
  std::vector<uint32_t> end_of_generation_ids_;  // sorted
};

}  // namespace strata::tokenizer
