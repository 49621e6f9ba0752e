#include "services/gateway/api/chat_request.h"

#include <algorithm>

#include "common/base/status.h"
#include "services/gateway/api/replay.h"
#include "services/gateway/api/sampling.h"
#include "services/gateway/json/json.h"

namespace strata::gateway {
namespace {

namespace json = boost::json;

constexpr FieldSpec kOwnFields[] = {
    {"messages", kArray},
    {"max_completion_tokens", kInteger, -1, 1e300},
    {"logprobs", kBool},
    {"top_logprobs", kInteger, 0, 20},
    {"tools", kArray},
    {"tool_choice", kString | kObject},
    {"parallel_tool_calls", kBool},
    {"response_format", kObject},
    {"chat_template_kwargs", kObject},
    {"reasoning_effort", kString},
    {"enable_thinking", kBool},
    {"thinking", kObject},
    {"metadata", kObject},
    {"store", kBool},
    {"service_tier", kString},
    {"add_generation_prompt", kBool},
};

std::string_view Text(const json::value& s) {
  return {s.get_string().data(), s.get_string().size()};
}

std::string_view TrimEnd(std::string_view s) {
  const size_t end = s.find_last_not_of(" \n\r\t");
  return s.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

std::optional<ApiError> CheckMessages(const json::object& body) {
  const json::value* messages = Field(body, "messages");
  if (messages == nullptr) return BadField("messages", "'messages' is missing.");
  const json::array& list = messages->get_array();
  if (list.empty()) return BadField("messages", "'messages' must not be empty.");
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = absl::StrCat("messages[", i, "]");
    if (!list[i].is_object())
      return BadField(path, absl::StrCat("'", path, "' must be an object."));
    static constexpr FieldSpec kMessage[] = {
        {"role", kString},      {"content", kString | kArray}, {"name", kString},
        {"tool_calls", kArray}, {"tool_call_id", kString},     {"reasoning_content", kString},
        {"reasoning", kString}};
    auto error = CheckFields(list[i].get_object(), kMessage, path + ".");
    if (error) return error;
    if (Field(list[i].get_object(), "role") == nullptr) {
      return BadField(path + ".role", absl::StrCat("'", path, ".role' is missing."));
    }
  }
  return std::nullopt;
}

std::optional<ApiError> CheckTools(const json::object& body) {
  const json::value* tools = Field(body, "tools");
  if (tools == nullptr) return std::nullopt;
  const json::array& list = tools->get_array();
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = absl::StrCat("tools[", i, "]");
    if (!list[i].is_object())
      return BadField(path, absl::StrCat("'", path, "' must be an object."));
    static constexpr FieldSpec kTool[] = {{"type", kString}, {"function", kObject}};
    if (auto error = CheckFields(list[i].get_object(), kTool, path + ".")) return error;
    const json::value* function = Field(list[i].get_object(), "function");
    if (function == nullptr) continue;  // a hosted tool of some service: not ours
    static constexpr FieldSpec kFunction[] = {
        {"name", kString}, {"description", kString}, {"parameters", kObject}, {"strict", kBool}};
    const std::string inner = path + ".function.";
    if (auto error = CheckFields(function->get_object(), kFunction, inner)) return error;
    if (GetString(function->get_object(), "name").empty()) {
      return BadField(inner + "name", absl::StrCat("'", inner, "name' is missing."));
    }
  }
  return std::nullopt;
}

// Tool choice decides whether tools are shown and whether the answer starts inside a call.
struct ToolChoice {
  bool use_tools = false;
  bool forced = false;
  std::string name;  // of a forced call; empty = any
};

std::optional<ApiError> ReadToolChoice(const json::object& body, ToolChoice* choice) {
  const json::value* tools = Field(body, "tools");
  const bool has_tools = tools != nullptr && !tools->get_array().empty();
  choice->use_tools = has_tools;
  const json::value* wanted = Field(body, "tool_choice");
  if (wanted == nullptr) return std::nullopt;
  if (wanted->is_string()) {
    const std::string_view word = Text(*wanted);
    if (word == "none") {
      choice->use_tools = false;
    } else if (word == "required") {
      choice->forced = true;
    } else if (word != "auto") {
      return BadField("tool_choice",
                      "'tool_choice' must be none, auto, required, or name a function.");
    }
  } else {
    const json::value* function = Field(wanted->get_object(), "function");
    const json::object* holder =
        function != nullptr && function->is_object() ? &function->get_object() : nullptr;
    choice->name = holder == nullptr ? std::string() : GetString(*holder, "name");
    if (choice->name.empty()) {
      return BadField("tool_choice", "'tool_choice' must have 'function' with a 'name'.");
    }
    choice->forced = true;
  }
  if (!choice->forced) return std::nullopt;
  bool known = choice->name.empty() && has_tools;
  for (size_t i = 0; has_tools && i < tools->get_array().size(); ++i) {
    const json::value* function = Field(tools->get_array()[i].get_object(), "function");
    known |= function != nullptr && GetString(function->get_object(), "name") == choice->name;
  }
  if (!known) {
    return BadField("tool_choice", choice->name.empty()
                                       ? "'tool_choice' is required but there are no tools."
                                       : absl::StrCat("'tool_choice' names '", choice->name,
                                                      "', which is not among the tools."));
  }
  return std::nullopt;
}

// Constrained output does not exist yet. Answering unconstrained would break the promise silently.
std::optional<ApiError> CheckResponseFormat(const json::object& body) {
  const json::value* format = Field(body, "response_format");
  if (format == nullptr) return std::nullopt;
  const std::string type = GetString(format->get_object(), "type");
  if (type == "text") return std::nullopt;
  return BadField("response_format", absl::StrCat("'response_format' of type '", type,
                                                  "' is not supported; only 'text' is."));
}

std::optional<bool> WantsThinking(const json::object& body) {
  if (const json::value* enabled = Field(body, "enable_thinking")) return enabled->get_bool();
  if (const json::value* thinking = Field(body, "thinking")) {
    const std::string type = GetString(thinking->get_object(), "type");
    if (type == "disabled") return false;
    if (type == "enabled" || type == "adaptive") return true;
  }
  if (GetString(body, "reasoning_effort") == "none") return false;
  return std::nullopt;
}

json::object TemplateVariables(const json::object& body, bool use_tools) {
  json::object variables;
  if (const json::value* kwargs = Field(body, "chat_template_kwargs")) {
    variables = kwargs->get_object();
  }
  if (const auto thinking = WantsThinking(body)) variables["enable_thinking"] = *thinking;
  if (const json::value* effort = Field(body, "reasoning_effort")) {
    variables["reasoning_effort"] = *effort;
  }
  variables["messages"] = body.at("messages");
  if (use_tools) {
    json::array functions;
    for (const json::value& tool : body.at("tools").get_array()) {
      if (Field(tool.get_object(), "function") != nullptr) functions.push_back(tool);
    }
    if (!functions.empty()) variables["tools"] = std::move(functions);
  }
  variables["add_generation_prompt"] = GetBool(body, "add_generation_prompt", true);
  return variables;
}

// An assistant message at the end is the beginning of the answer: it is taken off and put behind
// the rendered prompt. Returns its text.
std::string TakePrefill(json::object* variables) {
  json::array& messages = variables->at("messages").get_array();
  const json::object& last = messages.back().get_object();
  const json::value* content = Field(last, "content");
  if (GetString(last, "role") != "assistant" || messages.size() < 2 || content == nullptr ||
      !content->is_string() || Field(last, "tool_calls") != nullptr) {
    return {};
  }
  std::string text(Text(*content));
  messages.pop_back();
  return text;
}

// What the rendered prompt says about the state the answer starts in.
void ReadPromptTail(const std::vector<TextPart>& parts, ParserOptions* parser) {
  std::string tail;
  for (size_t i = parts.size(); i > 0 && tail.size() < 64; --i) {
    tail.insert(0, parts[i - 1].text);
    if (!parts[i - 1].trusted) break;  // a user's text does not open or close reasoning
  }
  const std::string_view end = TrimEnd(tail);
  parser->reasoning = true;
  if (end.ends_with(MarkerText(Marker::kThinkOpen))) parser->starts_in_reasoning = true;
  // Closed in the prompt: reasoning is off, and a later "<think>" is text.
  if (end.ends_with(MarkerText(Marker::kThinkClose))) parser->reasoning = false;
}

std::string ForcedCall(const std::string& name) {
  std::string text = "{\"name\": ";
  if (name.empty()) return text + "\"";
  AppendJsonString(name, &text);
  return text + ", \"arguments\": ";
}

std::optional<ApiError> ReadOwnFields(const json::object& body, AnswerPlan* plan) {
  if (const auto limit = GetInteger(body, "max_completion_tokens")) {
    if (*limit == 0) {
      return BadField("max_completion_tokens", "'max_completion_tokens' must be at least 1.");
    }
    plan->max_tokens = static_cast<uint32_t>(std::clamp<int64_t>(*limit, 0, UINT32_MAX));
  }
  plan->logprobs = GetBool(body, "logprobs", false);
  plan->top_logprobs = static_cast<uint32_t>(GetInteger(body, "top_logprobs").value_or(0));
  if (plan->top_logprobs > 0 && !plan->logprobs) {
    return BadField("top_logprobs", "'top_logprobs' needs 'logprobs' to be true.");
  }
  plan->single_tool_call = !GetBool(body, "parallel_tool_calls", true);
  return CheckResponseFormat(body);
}

struct Rendered {
  std::vector<TextPart> parts;
  bool prefilled = false;
};

// `replays` null: as the template writes it.
std::optional<ApiError> Render(const ApiContext& context, const json::object& body, bool use_tools,
                               ReplayBook* replays, const std::string& tenant, Rendered* out) {
  json::object variables = TemplateVariables(body, use_tools);
  const std::string prefill = TakePrefill(&variables);
  auto parts = RenderWithReplays(*context.model, replays, tenant, variables);
  if (!parts.ok()) return BadField("messages", std::string(parts.status().message()));
  out->parts = *std::move(parts);
  if (!prefill.empty()) {
    out->parts.push_back({prefill, false, {}});
    out->prefilled = true;
  }
  return std::nullopt;
}

std::optional<ApiError> ReadChat(const ApiContext& context, const json::object& body,
                                 const std::string& tenant, ChatRequest* request) {
  AnswerPlan& plan = request->plan;
  if (auto error = CheckFields(body, ChatFields())) return error;
  request->model = GetString(body, "model");
  if (auto error = CheckModelName(context, request->model)) return error;
  if (request->model.empty()) request->model = context.model->name();
  if (auto error = ReadSampling(body, *context.model, &plan)) return error;
  if (auto error = ReadOwnFields(body, &plan)) return error;
  if (auto error = CheckMessages(body)) return error;
  if (auto error = CheckTools(body)) return error;
  ToolChoice tools;
  if (auto error = ReadToolChoice(body, &tools)) return error;

  Rendered rendered;
  if (auto error = Render(context, body, tools.use_tools, context.replays, tenant, &rendered)) {
    return error;
  }
  plan.parser.tools = tools.use_tools;
  if (!rendered.prefilled) ReadPromptTail(rendered.parts, &plan.parser);
  if (tools.forced) {
    // The call is begun for the model; it can only go on with it. Reasoning has no place then.
    const std::string prefix = ForcedCall(tools.name);
    if (plan.parser.starts_in_reasoning) {
      rendered.parts.push_back(
          {absl::StrCat("\n", A(MarkerText(Marker::kThinkClose)), "\n\n"), true, {}});
      plan.parser.starts_in_reasoning = false;
    }
    rendered.parts.push_back(
        {absl::StrCat(A(MarkerText(Marker::kCallOpen)), "\n", prefix), true, {}});
    plan.parser.starts_in_call = true;
    plan.parser.call_prefix = prefix;
  }
  const auto prompt = std::make_shared<const std::vector<uint32_t>>(
      context.model->Encode(rendered.parts, /*with_bos=*/true));
  const uint64_t seed = ReadSeed(body);
  for (uint32_t i = 0; i < ReadCount(body); ++i) {
    ChoicePlan choice;
    choice.prompt = prompt;
    choice.first_of_prompt = i == 0;
    choice.seed = seed + i;
    plan.choices.push_back(std::move(choice));
  }
  return std::nullopt;
}

}  // namespace

std::span<const FieldSpec> ChatFields() {
  static const std::vector<FieldSpec> fields = [] {
    std::vector<FieldSpec> all(SamplingFields().begin(), SamplingFields().end());
    all.insert(all.end(), std::begin(kOwnFields), std::end(kOwnFields));
    return all;
  }();
  return fields;
}

ChatResult ReadChatRequest(const ApiContext& context, std::string_view text,
                           const std::string& tenant) {
  ChatResult result;
  Body body = ParseBody(text);
  result.error =
      body.error ? std::move(body.error) : ReadChat(context, body.object, tenant, &result.request);
  return result;
}

PromptResult RenderPrompt(const ApiContext& context, const json::object& body) {
  PromptResult result;
  result.error = CheckFields(body, ChatFields());
  if (!result.error) result.error = CheckMessages(body);
  if (!result.error) result.error = CheckTools(body);
  ToolChoice tools;
  if (!result.error) result.error = ReadToolChoice(body, &tools);
  if (result.error) return result;
  Rendered rendered;
  result.error = Render(context, body, tools.use_tools, nullptr, "", &rendered);
  result.parts = std::move(rendered.parts);
  return result;
}

}  // namespace strata::gateway
