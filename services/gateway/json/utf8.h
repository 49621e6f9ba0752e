// Keeps a stream of byte pieces at character borders.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace strata::gateway {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Length of the valid UTF-8 sequence at the start of `s` (1..4); 0 if the bytes can never become
// one; -1 if they are the beginning of one that is cut off.
int Utf8SequenceLength(std::string_view s);

// `s` with every byte that is not part of a valid sequence replaced by U+FFFD.
std::string ToValidUtf8(std::string_view s);

// Passes complete characters on and holds a cut-off one until its rest arrives. The concatenated
// output does not depend on how the input was cut.
class Utf8Gate {
 public:
  // Complete characters of what was held plus `bytes`; invalid bytes come out as U+FFFD.
  std::string Push(std::string_view bytes);
  // What is still held, as U+FFFD. Afterwards the gate is empty.
  std::string Flush();
  size_t held() const { return held_.size(); }

 private:
  std::string held_;
};

}  // namespace strata::gateway
