// What the gateway knows of the model without running it: its tokens and its chat template.
//
// An interface, so that the API is tested with a tiny vocabulary whose token borders the test
// chooses. Implementations are immutable and thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "strata/v1/model.pb.h"

#include "absl/status/statusor.h"

namespace strata::gateway {

// A piece of a prompt. Only trusted text (the template's own) may become control tokens.
struct TextPart {
  std::string text;
  bool trusted = false;
  std::vector<uint32_t> tokens;  // if any: these stand for the text
};

class Model {
 public:
  virtual ~Model() = default;

  // The id under which the API lists it.
  virtual const std::string& name() const = 0;
  virtual uint32_t vocab_size() const = 0;

  // Tokens of the joined parts; with the begin-of-sequence token in front if `with_bos` and the
  // model wants one and the text does not bring it.
  virtual std::vector<uint32_t> Encode(std::span<const TextPart> parts, bool with_bos) const = 0;
  // Bytes of a token; ids are below vocab_size().
  virtual std::string_view Piece(uint32_t id) const = 0;
  // Control tokens are not shown to clients.
  virtual bool IsControl(uint32_t id) const = 0;
  virtual std::span<const uint32_t> end_of_generation() const = 0;
  // The token that is exactly this text, if the vocabulary has one.
  virtual std::optional<uint32_t> FindToken(std::string_view text) const = 0;

  // Renders the chat template with `messages`, `tools`, `add_generation_prompt` and whatever else
  // is in `variables`, as clients send them. Errors are the client's: a message's shape, or what
  // the template itself refuses.
  virtual absl::StatusOr<std::vector<TextPart>> Render(
      const boost::json::object& variables) const = 0;
  virtual std::string_view chat_template() const = 0;

  // What a request that says nothing gets.
  virtual const v1::SamplingParams& default_sampling() const = 0;
};

}  // namespace strata::gateway
