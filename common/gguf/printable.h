// Text from a file made safe for a terminal or a log line.
#pragma once

#include <string>
#include <string_view>

namespace strata::gguf {

// Control characters (also the two-byte ones of UTF-8, U+0080 to U+009F) become \xNN; at most
// `max_bytes` of the text are shown, then "...". Never cuts a UTF-8 character.
std::string Printable(std::string_view text, size_t max_bytes = 200);

}  // namespace strata::gguf
