#include "common/tokenizer/line_starts.h"

namespace strata::tokenizer {

std::vector<uint32_t> LineStarts(std::span<const uint32_t> tokens,
                                 absl::FunctionRef<std::string_view(uint32_t)> piece) {
  std::vector<uint32_t> starts;
  bool in_call = false;
  bool begins = true;
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    if (begins && !in_call) starts.push_back(i);
    const std::string_view text = piece(tokens[i]);
    if (text == "<tool_call>") in_call = true;
    if (text == "</tool_call>") in_call = false;
    begins = !text.empty() && text.back() == '\n';
  }
  return starts;
}

}  // namespace strata::tokenizer
