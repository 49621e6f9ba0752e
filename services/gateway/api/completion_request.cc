#include "services/gateway/api/completion_request.h"

#include <algorithm>

#include "common/base/status.h"
#include "services/gateway/api/sampling.h"
#include "services/gateway/json/utf8.h"

namespace strata::gateway {
namespace {

namespace json = boost::json;

constexpr size_t kMaxPrompts = 64;

constexpr FieldSpec kOwnFields[] = {
    {"prompt", kString | kArray},  {"suffix", kString},           {"echo", kBool},
    {"logprobs", kInteger, 0, 20}, {"best_of", kInteger, 1, 128},
};

struct Prompt {
  std::vector<uint32_t> tokens;
  std::string text;  // for echo
};

std::string Decode(const Model& model, const std::vector<uint32_t>& tokens) {
  std::string text;
  for (const uint32_t id : tokens) {
    if (!model.IsControl(id)) text += model.Piece(id);
  }
  return ToValidUtf8(text);
}

Prompt FromText(const Model& model, const json::value& text) {
  Prompt prompt;
  prompt.text = std::string(text.get_string().data(), text.get_string().size());
  // The older API has always read control tokens in its prompts: that is how one writes a template
  // by hand.
  const TextPart part{prompt.text, true, {}};
  prompt.tokens = model.Encode({&part, 1}, /*with_bos=*/true);
  return prompt;
}

std::optional<ApiError> FromIds(const Model& model, const json::array& ids, Prompt* prompt) {
  for (const json::value& id : ids) {
    if (!IsInteger(id) || ToInteger(id) < 0 || ToInteger(id) >= model.vocab_size()) {
      return BadField("prompt",
                      absl::StrCat("'prompt' holds a token id that is not an integer from "
                                   "0 to ",
                                   model.vocab_size() - 1, "."));
    }
    prompt->tokens.push_back(static_cast<uint32_t>(ToInteger(id)));
  }
  prompt->text = Decode(model, prompt->tokens);
  return std::nullopt;
}

// A string, strings, token ids, or lists of token ids.
std::optional<ApiError> ReadPrompts(const Model& model, const json::object& body,
                                    std::vector<Prompt>* prompts) {
  const json::value* value = Field(body, "prompt");
  if (value == nullptr) return BadField("prompt", "'prompt' is missing.");
  if (value->is_string()) {
    prompts->push_back(FromText(model, *value));
    return std::nullopt;
  }
  const json::array& list = value->get_array();
  if (!list.empty() && list[0].is_number()) return FromIds(model, list, &prompts->emplace_back());
  if (list.empty() || list.size() > kMaxPrompts) {
    return BadField("prompt", absl::StrCat("'prompt' must hold 1 to ", kMaxPrompts, " prompts."));
  }
  for (const json::value& item : list) {
    if (item.is_string()) {
      prompts->push_back(FromText(model, item));
    } else if (item.is_array()) {
      auto error = FromIds(model, item.get_array(), &prompts->emplace_back());
      if (error) return error;
    } else {
      return BadField("prompt",
                      "'prompt' must be a string, strings, token ids, or lists of token ids.");
    }
  }
  return std::nullopt;
}

std::optional<ApiError> ReadCompletion(const ApiContext& context, const json::object& body,
                                       CompletionResult* result) {
  AnswerPlan& plan = result->plan;
  if (auto error = CheckFields(body, CompletionFields())) return error;
  result->model = GetString(body, "model");
  if (auto error = CheckModelName(context, result->model)) return error;
  if (result->model.empty()) result->model = context.model->name();
  if (auto error = ReadSampling(body, *context.model, &plan)) return error;
  // The older API's own default; without it a plain prompt would run until the context is full.
  if (Field(body, "max_tokens") == nullptr) plan.max_tokens = 16;
  if (!GetString(body, "suffix").empty()) {
    return BadField("suffix", "'suffix' is not supported.");
  }
  const uint32_t count = ReadCount(body);
  if (GetInteger(body, "best_of").value_or(count) != count) {
    return BadField("best_of", "'best_of' is supported only when it equals 'n'.");
  }
  const bool echo = GetBool(body, "echo", false);
  if (const auto logprobs = GetInteger(body, "logprobs")) {
    plan.logprobs = true;
    plan.top_logprobs = static_cast<uint32_t>(*logprobs);
    if (echo) return BadField("echo", "'echo' together with 'logprobs' is not supported.");
  }
  std::vector<Prompt> prompts;
  if (auto error = ReadPrompts(*context.model, body, &prompts)) return error;
  const uint64_t seed = ReadSeed(body);
  for (Prompt& prompt : prompts) {
    if (prompt.tokens.empty()) {
      return BadField("prompt",
                      "'prompt' must not be empty: this model has no token to start from.");
    }
    const auto tokens = std::make_shared<const std::vector<uint32_t>>(std::move(prompt.tokens));
    for (uint32_t i = 0; i < count; ++i) {
      ChoicePlan choice;
      choice.prompt = tokens;
      if (echo) choice.echo = prompt.text;
      choice.first_of_prompt = i == 0;
      choice.seed = seed + i;
      plan.choices.push_back(std::move(choice));
    }
  }
  return std::nullopt;
}

}  // namespace

std::span<const FieldSpec> CompletionFields() {
  static const std::vector<FieldSpec> fields = [] {
    std::vector<FieldSpec> all(SamplingFields().begin(), SamplingFields().end());
    all.insert(all.end(), std::begin(kOwnFields), std::end(kOwnFields));
    return all;
  }();
  return fields;
}

CompletionResult ReadCompletionRequest(const ApiContext& context, std::string_view text) {
  CompletionResult result;
  Body body = ParseBody(text);
  result.error = body.error ? std::move(body.error) : ReadCompletion(context, body.object, &result);
  return result;
}

}  // namespace strata::gateway
