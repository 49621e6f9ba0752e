// Text to numbers as Python's int() and float() read it: blanks around it, a sign, underscores
// between digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace strata::gateway::jinja {

std::optional<int64_t> ParseInt(std::string_view text, int64_t base);
std::optional<double> ParseFloat(std::string_view text);

}  // namespace strata::gateway::jinja
