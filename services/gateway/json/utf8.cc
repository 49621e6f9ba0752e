#include "services/gateway/json/utf8.h"

namespace strata::gateway {
namespace {

// Range of the second byte that makes the sequence well formed (Unicode 15, table 3-7): excludes
// overlong forms, surrogates and values above U+10FFFF.
struct Lead {
  int length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
};

Lead ReadLead(unsigned char c) {
  if (c < 0x80) return {1};
  if (c >= 0xC2 && c <= 0xDF) return {2};
  if (c == 0xE0) return {3, 0xA0, 0xBF};
  if (c == 0xED) return {3, 0x80, 0x9F};
  if (c >= 0xE1 && c <= 0xEF) return {3};
  if (c == 0xF0) return {4, 0x90, 0xBF};
  if (c == 0xF4) return {4, 0x80, 0x8F};
  if (c >= 0xF1 && c <= 0xF3) return {4};
  return {0};
}

// Appends the characters of `s` to `out`; returns how many bytes at the end are a cut-off
// character.
size_t AppendValid(std::string_view s, std::string* out) {
  size_t i = 0;
  while (i < s.size()) {
    const int n = Utf8SequenceLength(s.substr(i));
    if (n < 0) return s.size() - i;
    if (n == 0) {
      out->append(kReplacementCharacter);
      ++i;
    } else {
      out->append(s, i, static_cast<size_t>(n));
      i += static_cast<size_t>(n);
    }
  }
  return 0;
}

}  // namespace

int Utf8SequenceLength(std::string_view s) {
  if (s.empty()) return -1;
  const Lead lead = ReadLead(static_cast<unsigned char>(s[0]));
  for (int i = 1; i < lead.length; ++i) {
    if (static_cast<size_t>(i) >= s.size()) return -1;
    const auto c = static_cast<unsigned char>(s[static_cast<size_t>(i)]);
    const bool good = i == 1 ? c >= lead.low && c <= lead.high : c >= 0x80 && c <= 0xBF;
    if (!good) return 0;
  }
  return lead.length;
}

std::string ToValidUtf8(std::string_view s) {
  Utf8Gate gate;
  std::string out = gate.Push(s);
  return out + gate.Flush();
}

std::string Utf8Gate::Push(std::string_view bytes) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_;
    joined.append(bytes);
    bytes = joined;
  }
  std::string out;
  out.reserve(bytes.size());
  const size_t tail = AppendValid(bytes, &out);
  held_ = std::string(bytes.substr(bytes.size() - tail));
  return out;
}

std::string Utf8Gate::Flush() {
  std::string out;
  // One mark per byte, as for invalid bytes in the middle.
  for (size_t i = 0; i < held_.size(); ++i) out.append(kReplacementCharacter);
  held_.clear();
  return out;
}

}  // namespace strata::gateway
