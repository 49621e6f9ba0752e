// Mixed text for tests and benchmarks: the same on every run on one machine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace strata::tokenizer {

// Documents of at most 32 KiB and together at least `bytes`: English, code, and translations into
// many languages from files of this machine (a source that is missing is made up for by the next),
// recorded prompts of real clients, and generated text: CJK, Arabic, Indic scripts, emoji, marks,
// numbers, contractions, whitespace runs, invalid bytes. Documents are cut anywhere, also inside
// characters.
std::vector<std::string> MakeCorpus(size_t bytes);

// Only the generated part; `valid_only` leaves invalid bytes out.
std::string GenerateText(size_t bytes, uint64_t seed, bool valid_only);

// Replaces the bytes that stop the oracle's process: it decodes sequences above U+10FFFF, and then
// throws when it encodes them.
void MakeSafeForOracle(std::string* text);

}  // namespace strata::tokenizer
