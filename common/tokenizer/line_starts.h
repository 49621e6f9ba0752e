// Where lines of a tokenised text begin: the places at which text may be cut and put together
// again.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"

namespace strata::tokenizer {

// Positions of the tokens that follow one whose text ends with a newline, ascending, and 0. A token
// that holds a newline and more begins no line. Lines inside a tool call (between tokens that are
// <tool_call> and </tool_call>) do not count: a call is taken whole or not at all. `piece` gives a
// token's text.
std::vector<uint32_t> LineStarts(std::span<const uint32_t> tokens,
                                 absl::FunctionRef<std::string_view(uint32_t)> piece);

}  // namespace strata::tokenizer
