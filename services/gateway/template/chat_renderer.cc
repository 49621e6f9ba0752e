#include "services/gateway/template/chat_renderer.h"

#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "services/gateway/template/chat_messages.h"

namespace strata::gateway {

constexpr std::string_view kDefaultChatTemplate =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

ChatRenderer::ChatRenderer(std::string source, ChatTemplate chat_template,
                           boost::json::object tokens)
    : source_(std::move(source)),
      template_(std::move(chat_template)),
      tokens_(std::move(tokens)),
      caps_(ProbeTemplate(template_, tokens_)) {}

absl::StatusOr<ChatRenderer> ChatRenderer::Create(std::string_view source,
                                                  boost::json::object tokens) {
  if (source.empty()) {
    LogWarning("the model brings no chat template: using the ChatML format");
    source = kDefaultChatTemplate;
  }
  STRATA_ASSIGN_OR_RETURN(ChatTemplate parsed, ChatTemplate::Parse(source));
  return ChatRenderer(std::string(source), std::move(parsed), std::move(tokens));
}

absl::StatusOr<std::vector<ChatTemplate::Piece>> ChatRenderer::Render(
    const boost::json::object& variables, const RenderLimits& limits) const {
  boost::json::object all = variables;
  for (const auto& pair : tokens_) all[pair.key()] = pair.value();
  const boost::json::value* messages = variables.if_contains("messages");
  if (messages == nullptr || !messages->is_array()) {
    return absl::InvalidArgumentError("'messages' must be a list");
  }
  STRATA_ASSIGN_OR_RETURN(all["messages"], NormalizeMessages(messages->get_array(), caps_));
  // Only what the model file brings is trusted, whatever names the request uses.
  RenderOptions options;
  options.trusted_variables.clear();
  for (const auto& pair : tokens_) {
    options.trusted_variables.emplace_back(pair.key().data(), pair.key().size());
  }
  return template_.Render(all, limits, options);
}

}  // namespace strata::gateway
