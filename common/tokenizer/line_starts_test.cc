#include "common/tokenizer/line_starts.h"

#include <gtest/gtest.h>

#include <array>

namespace strata::tokenizer {
namespace {

std::vector<uint32_t> Of(std::span<const std::string_view> pieces) {
  std::vector<uint32_t> tokens(pieces.size());
  for (uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = i;
  return LineStarts(tokens, [&](uint32_t id) { return pieces[id]; });
}

TEST(LineStarts, FollowNewlines) {
  const std::array<std::string_view, 7> text = {"a", "b\n", "\n", "c", "\nd", ".\n\n", "e"};
  const std::vector<uint32_t> expected = {0, 2, 3, 6};
  EXPECT_EQ(Of(text), expected);
  EXPECT_TRUE(Of({}).empty());
}

TEST(LineStarts, ACallIsOnePiece) {
  const std::array<std::string_view, 9> text = {"a\n", "<tool_call>",  "\n", "{", "\n",
                                                "}\n", "</tool_call>", "\n", "b"};
  const std::vector<uint32_t> expected = {0, 1, 8};
  EXPECT_EQ(Of(text), expected);
}

}  // namespace
}  // namespace strata::tokenizer
