// Tokens to text as they are generated: never half a character, and in the end exactly the text
// that a lossy UTF-8 decode of all the bytes would give.
//
//   StreamDecoder decoder(tokenizer, /*render_control=*/false);
//   for each id: Send(decoder.Push(id));
//   Send(decoder.Finish());
//
// One per generation; not thread-safe. The tokenizer must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/tokenizer/tokenizer.h"

namespace strata::tokenizer {

class StreamDecoder {
 public:
  // Control tokens appear by their text if `render_control`, else not at all.
  StreamDecoder(const Tokenizer& tokenizer, bool render_control)
      : tokenizer_(tokenizer), render_control_(render_control) {}

  // The text completed by this token, valid UTF-8 and possibly empty: the start of a character is
  // kept back until its end arrives, bytes that cannot become one are replaced by U+FFFD at once.
  // An id outside the vocabulary adds nothing.
  std::string Push(uint32_t id);

  // What was kept back, as U+FFFD. The decoder can be used for a new text afterwards.
  std::string Finish();

  // Bytes kept back at the moment, at most 3.
  size_t pending_bytes() const { return pending_.size(); }

 private:
  const Tokenizer& tokenizer_;
  const bool render_control_;
  std::string pending_;  // start of a character
};

}  // namespace strata::tokenizer
