#include "common/gguf/printable.h"

#include "common/base/status.h"

namespace strata::gguf {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

bool IsControl(std::string_view text, size_t i) {
  const auto byte = static_cast<unsigned char>(text[i]);
  if (byte < 0x20 || byte == 0x7F) return true;
  const bool after_c2 = i > 0 && static_cast<unsigned char>(text[i - 1]) == 0xC2;
  return after_c2 && byte >= 0x80 && byte <= 0x9F;
}

}  // namespace

std::string Printable(std::string_view text, size_t max_bytes) {
  size_t end = text.size();
  if (end > max_bytes) {
    end = max_bytes;
    while (end > 0 && IsContinuation(text[end])) --end;
  }
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (IsControl(text, i)) {
      absl::StrAppend(&out, "\\x", absl::Hex(static_cast<unsigned char>(text[i]), absl::kZeroPad2));
    } else {
      out.push_back(text[i]);
    }
  }
  if (end < text.size()) out += "...";
  return out;
}

}  // namespace strata::gguf
