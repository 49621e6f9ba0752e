// The class of a code point, as far as a pre-tokenizer asks: the general categories L, N, M, P, S
// and the property White_Space are disjoint, so one value says all. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::tokenizer {

enum class CharClass : uint8_t {
  kOther,  // control, format, private use, surrogate, unassigned
  kLetter,
  kNumber,
  kMark,
  kPunctuation,
  kSymbol,
  kSpace,  // the property White_Space, which includes some control characters
  kEnd,    // no character: the end of the text
};

// Two-level table: code point / 256 selects a block, blocks with equal contents are stored once.
class UnicodeClasses {
 public:
  UnicodeClasses();
  CharClass Of(uint32_t code_point) const {
    if (code_point > 0x10FFFF) return CharClass::kOther;
    return blocks_[(static_cast<size_t>(block_of_[code_point >> 8]) << 8) | (code_point & 0xFF)];
  }

 private:
  std::array<uint16_t, 0x1100> block_of_;
  std::vector<CharClass> blocks_;
};

// Built at the first call, never destroyed.
const UnicodeClasses& GetUnicodeClasses();

}  // namespace strata::tokenizer
