// A model's chat format in one object: template, what it can do, and its special tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "services/gateway/template/chat_template.h"
#include "services/gateway/template/template_caps.h"

#include "absl/status/statusor.h"

namespace strata::gateway {

// For models that bring no template: <|im_start|>ROLE, a line break, the text, <|im_end|>.
extern const std::string_view kDefaultChatTemplate;

// Immutable and thread-safe.
class ChatRenderer {
 public:
  // `source` empty: kDefaultChatTemplate, with a warning in the log. A source that does not parse
  // is an error: a wrong prompt format silently ruins answers. `tokens`: variables every rendering
  // gets, such as bos_token and eos_token (as text).
  static absl::StatusOr<ChatRenderer> Create(std::string_view source, boost::json::object tokens);

  // `variables`: messages as clients send them (see chat_messages.h), tools, add_generation_prompt,
  // template arguments of the request. They cannot replace the tokens.
  // Errors are the request's or the template's, none the server's: answer 400.
  absl::StatusOr<std::vector<ChatTemplate::Piece>> Render(const boost::json::object& variables,
                                                          const RenderLimits& limits = {}) const;

  const TemplateCaps& caps() const { return caps_; }
  const std::string& source() const { return source_; }

 private:
  ChatRenderer(std::string source, ChatTemplate chat_template, boost::json::object tokens);

  std::string source_;
  ChatTemplate template_;
  boost::json::object tokens_;
  TemplateCaps caps_;
};

}  // namespace strata::gateway
