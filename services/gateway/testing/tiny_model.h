// A model of 1024 tokens for tests: 0..255 are bytes, then a few words and markers, so that a test
// can cut any text into tokens as it likes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "services/gateway/model/model.h"

namespace strata::gateway::testing {

class TinyModel : public Model {
 public:
  static constexpr uint32_t kEnd = 256;        // "<|end|>", control, ends a generation
  static constexpr uint32_t kBos = 257;        // "<|bos|>", control
  static constexpr uint32_t kUser = 258;       // "<|user|>", control
  static constexpr uint32_t kAssistant = 259;  // "<|assistant|>", control
  static constexpr uint32_t kFirstWord = 300;

  // `words` become tokens from kFirstWord on.
  explicit TinyModel(std::vector<std::string> words = {});

  // One token per byte, except words given in angle quotes by the caller through Word().
  static std::vector<uint32_t> Bytes(std::string_view text);
  // Appends the reasoning opening to rendered prompts.
  void set_prompt_tail(std::string tail) { prompt_tail_ = std::move(tail); }

  const std::string& name() const override { return name_; }
  uint32_t vocab_size() const override { return 1024; }
  std::vector<uint32_t> Encode(std::span<const TextPart> parts, bool with_bos) const override;
  std::string_view Piece(uint32_t id) const override { return pieces_[id]; }
  bool IsControl(uint32_t id) const override { return id >= kEnd && id <= kAssistant; }
  std::span<const uint32_t> end_of_generation() const override { return ends_; }
  std::optional<uint32_t> FindToken(std::string_view text) const override;
  absl::StatusOr<std::vector<TextPart>> Render(const boost::json::object& variables) const override;
  std::string_view chat_template() const override { return "{{ tiny }}"; }
  const v1::SamplingParams& default_sampling() const override { return sampling_; }

 private:
  const std::string name_ = "tiny";
  std::string prompt_tail_;
  std::vector<std::string> pieces_;
  std::vector<uint32_t> ends_ = {kEnd};
  v1::SamplingParams sampling_;
};

}  // namespace strata::gateway::testing
