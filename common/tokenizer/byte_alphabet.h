// GPT-2's printable alphabet for bytes: byte-level BPE vocabularies write each byte of a token as
// one character. Printable Latin-1 bytes stand for themselves, the other 68 are U+0100, U+0101, ...
// in byte order (so a space is U+0120, "Ġ"). Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::tokenizer {

// The character that stands for a byte, as UTF-8.
std::string_view ByteToAlphabet(uint8_t byte);

// "Ġthe" -> " the". nullopt if a character is outside the alphabet.
std::optional<std::string> AlphabetToBytes(std::string_view text);

// " the" -> "Ġthe"
std::string BytesToAlphabet(std::string_view bytes);

}  // namespace strata::tokenizer
