#include "services/gateway/template/template_caps.h"

#include <optional>
#include <string>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

namespace strata::gateway {
namespace {

namespace json = boost::json;

// Words no template contains.
constexpr char kSystem[] = "strata-probe-system";
constexpr char kUser[] = "strata-probe-user";
constexpr char kReply[] = "strata-probe-reply";
constexpr char kTool[] = "strata_probe_tool";
constexpr char kArgument[] = "strata-probe-argument";
constexpr char kResult[] = "strata-probe-result";

class Prober {
 public:
  Prober(const ChatTemplate& chat_template, const json::object& tokens)
      : template_(chat_template), tokens_(tokens) {}

  TemplateCaps Run() {
    TemplateCaps caps;
    typed_ = false;
    if (!Shows({User()}, kUser)) {
      typed_ = true;
      caps.typed_content = Shows({User()}, kUser);
      typed_ = caps.typed_content;
    }
    caps.system_role = Shows({Message("system", kSystem), User()}, kSystem);
    caps.system_anywhere = Shows({User(), Reply(), Message("system", kSystem), User()}, kSystem);
    caps.alternating_roles = !Render({User(), User()}, nullptr).has_value();
    const json::array tools = {ToolDefinition()};
    const std::optional<std::string> with_tools = Render({User()}, &tools);
    caps.tools = with_tools && with_tools->find(kTool) != std::string::npos;
    ProbeCalls(caps, tools);
    return caps;
  }

 private:
  json::value Content(std::string_view text) const {
    if (!typed_) return json::value(json::string(text));
    return json::array{json::object{{"type", "text"}, {"text", json::string(text)}}};
  }
  json::object Message(std::string_view role, std::string_view text) const {
    return {{"role", json::string(role)}, {"content", Content(text)}};
  }
  json::object User() const { return Message("user", kUser); }
  json::object Reply() const { return Message("assistant", kReply); }

  static json::object ToolDefinition() {
    return {{"type", "function"},
            {"function",
             {{"name", kTool},
              {"description", "Probe."},
              {"parameters",
               {{"type", "object"},
                {"properties", {{"key", {{"type", "string"}, {"description", "A word."}}}}},
                {"required", json::array{"key"}}}}}}};
  }

  std::optional<std::string> Render(json::array messages, const json::array* tools) const {
    json::object variables = tokens_;
    variables["messages"] = std::move(messages);
    variables["add_generation_prompt"] = true;
    if (tools != nullptr) variables["tools"] = *tools;
    const auto pieces = template_.Render(variables);
    if (!pieces.ok()) return std::nullopt;
    return JoinPieces(*pieces);
  }
  bool Shows(json::array messages, std::string_view word) const {
    const std::optional<std::string> text = Render(std::move(messages), nullptr);
    return text && text->find(word) != std::string::npos;
  }

  json::array Conversation(const TemplateCaps& shape) const {
    const char* id = shape.short_call_ids ? "a1b2c3d4e" : "call_abc123";
    json::object function{{"name", kTool}};
    const json::object arguments{{"key", kArgument}};
    if (shape.string_arguments) {
      function["arguments"] = std::string("{\"key\": \"") + kArgument + "\"}";
    } else {
      function["arguments"] = arguments;
    }
    json::object call = Message("assistant", "");
    if (shape.null_call_content) call["content"] = nullptr;
    call["tool_calls"] =
        json::array{json::object{{"id", id}, {"type", "function"}, {"function", function}}};
    json::object result = Message("tool", kResult);
    result["tool_call_id"] = id;
    result["name"] = kTool;
    return {User(), std::move(call), std::move(result)};
  }

  // The first way of writing a call that shows all of it. The plain ways come first.
  void ProbeCalls(TemplateCaps& caps, const json::array& tools) const {
    for (const bool short_ids : {false, true}) {
      for (const bool string_arguments : {false, true}) {
        for (const bool null_content : {false, true}) {
          TemplateCaps shape;
          shape.short_call_ids = short_ids;
          shape.string_arguments = string_arguments;
          shape.null_call_content = null_content;
          const std::optional<std::string> text = Render(Conversation(shape), &tools);
          const auto shows = [&](std::string_view word) {
            return text->find(word) != std::string::npos;
          };
          if (!text || !shows(kTool) || !shows(kArgument) || !shows(kResult)) continue;
          caps.tool_calls = true;
          caps.short_call_ids = short_ids;
          caps.string_arguments = string_arguments;
          caps.null_call_content = null_content;
          return;
        }
      }
    }
  }

  const ChatTemplate& template_;
  const json::object& tokens_;
  bool typed_ = false;
};

}  // namespace

TemplateCaps ProbeTemplate(const ChatTemplate& chat_template, const json::object& tokens) {
  return Prober(chat_template, tokens).Run();
}

}  // namespace strata::gateway
