#include "common/tokenizer/stream_decoder.h"

#include <string_view>

#include "common/tokenizer/utf8.h"

namespace strata::tokenizer {

std::string StreamDecoder::Push(uint32_t id) {
  if (id >= tokenizer_.vocab_size()) return {};
  if (tokenizer_.IsControl(id) && !render_control_) return {};
  pending_ += tokenizer_.Piece(id);
  std::string text;
  size_t position = 0;
  while (position < pending_.size()) {
    const Utf8Step step = StepUtf8(pending_, position);
    if (step.truncated) break;
    text += step.valid ? std::string_view(pending_).substr(position, step.length)
                       : kReplacementCharacter;
    position += step.length;
  }
  pending_.erase(0, position);
  return text;
}

std::string StreamDecoder::Finish() {
  std::string text = LossyUtf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace strata::tokenizer
