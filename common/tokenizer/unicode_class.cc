#include "common/tokenizer/unicode_class.h"

#include <algorithm>
#include <map>

namespace strata::tokenizer {
namespace {

struct Range {
  uint32_t first;
  CharClass char_class;
};

constexpr auto kOther = CharClass::kOther;
constexpr auto kLetter = CharClass::kLetter;
constexpr auto kNumber = CharClass::kNumber;
constexpr auto kMark = CharClass::kMark;
constexpr auto kPunctuation = CharClass::kPunctuation;
constexpr auto kSymbol = CharClass::kSymbol;
constexpr auto kSpace = CharClass::kSpace;

constexpr Range kRanges[] = {
#include "common/tokenizer/unicode_class_table.inc"
};

}  // namespace

UnicodeClasses::UnicodeClasses() : block_of_{} {
  using Block = std::array<CharClass, 256>;
  std::map<Block, uint16_t> known;
  const Range* range = std::begin(kRanges);
  for (uint32_t block_index = 0; block_index < block_of_.size(); ++block_index) {
    Block block{};
    for (uint32_t i = 0; i < block.size(); ++i) {
      const uint32_t code_point = block_index * 256 + i;
      while (range + 1 != std::end(kRanges) && (range + 1)->first <= code_point) ++range;
      block[i] = range->char_class;
    }
    const auto [found, is_new] = known.try_emplace(block, static_cast<uint16_t>(known.size()));
    if (is_new) blocks_.insert(blocks_.end(), block.begin(), block.end());
    block_of_[block_index] = found->second;
  }
}

const UnicodeClasses& GetUnicodeClasses() {
  static const UnicodeClasses* const classes = new UnicodeClasses();
  return *classes;
}

}  // namespace strata::tokenizer
