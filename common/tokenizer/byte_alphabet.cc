#include "common/tokenizer/byte_alphabet.h"

#include <array>

#include "common/tokenizer/utf8.h"

namespace strata::tokenizer {
namespace {

constexpr int kFirstSubstitute = 0x100;
constexpr int kLastSubstitute = 0x143;  // 68 bytes are not printable

bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

struct Alphabet {
  std::array<std::string, 256> character;
  std::array<int, kLastSubstitute + 1> byte;  // by code point, -1 = none

  Alphabet() {
    byte.fill(-1);
    uint32_t substitute = kFirstSubstitute;
    for (int b = 0; b < 256; ++b) {
      const uint32_t code_point = StandsForItself(b) ? static_cast<uint32_t>(b) : substitute++;
      AppendUtf8(code_point, &character[b]);
      byte[code_point] = b;
    }
  }
};

const Alphabet& GetAlphabet() {
  static const Alphabet* const alphabet = new Alphabet();
  return *alphabet;
}

}  // namespace

std::string_view ByteToAlphabet(uint8_t byte) { return GetAlphabet().character[byte]; }

std::optional<std::string> AlphabetToBytes(std::string_view text) {
  const Alphabet& alphabet = GetAlphabet();
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const Utf8Step step = StepUtf8(text, position);
    if (!step.valid) return std::nullopt;
    const uint32_t c = DecodeAt(text, position).value;
    if (c >= alphabet.byte.size() || alphabet.byte[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet.byte[c]));
    position += step.length;
  }
  return bytes;
}

std::string BytesToAlphabet(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += ByteToAlphabet(static_cast<uint8_t>(c));
  return text;
}

}  // namespace strata::tokenizer
