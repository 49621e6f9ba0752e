#include "services/gateway/api/sampling.h"

#include <sys/random.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>

#include "common/base/status.h"

namespace strata::gateway {
namespace {

namespace json = boost::json;

constexpr double kHuge = 1e300;
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxStopBytes = 4096;
constexpr size_t kMaxBiases = 4096;

constexpr FieldSpec kFields[] = {
    {"model", kString},
    {"stream", kBool},
    {"stream_options", kObject},
    {"max_tokens", kInteger, -1, kHuge},
    {"min_tokens", kInteger, 0, kHuge},
    {"temperature", kNumber, 0, 100},
    {"top_p", kNumber, 0, 1},
    {"top_k", kInteger, -1, kHuge},
    {"min_p", kNumber, 0, 1},
    {"typical_p", kNumber, 0, 1},
    {"repetition_penalty", kNumber, 0.01, 100},
    {"repeat_penalty", kNumber, 0.01, 100},
    {"repeat_last_n", kInteger, -1, kHuge},
    {"presence_penalty", kNumber, -2, 2},
    {"frequency_penalty", kNumber, -2, 2},
    {"logit_bias", kObject | kArray},
    {"seed", kInteger},
    {"stop", kString | kArray},
    {"n", kInteger, 1, 128},
    {"ignore_eos", kBool},
    {"user", kString},
    {"prompt_cache_key", kString},
    {"splice", kString},
    {"prompt_routing", kString},
    {"prompt_routing_bound", kNumber, 0.001, 1},
    {"prompt_routing_budget", kNumber, 0.001, 1},
};

constexpr FieldSpec kStreamFields[] = {{"include_usage", kBool}};

std::string_view Text(const json::string& s) { return {s.data(), s.size()}; }

uint32_t ClampToU32(int64_t value) {
  return static_cast<uint32_t>(std::clamp<int64_t>(value, 0, UINT32_MAX));
}

std::optional<ApiError> ReadStops(const json::object& body, AnswerPlan* plan) {
  const json::value* stop = Field(body, "stop");
  if (stop == nullptr) return std::nullopt;
  if (stop->is_string()) {
    plan->stops.emplace_back(Text(stop->get_string()));
  } else {
    for (const json::value& item : stop->get_array()) {
      if (!item.is_string())
        return BadField("stop", "'stop' must be a string or a list of strings.");
      plan->stops.emplace_back(Text(item.get_string()));
    }
  }
  const bool too_long = std::any_of(plan->stops.begin(), plan->stops.end(),
                                    [](const std::string& s) { return s.size() > kMaxStopBytes; });
  if (plan->stops.size() > kMaxStops || too_long) {
    return BadField("stop", absl::StrCat("'stop' takes at most ", kMaxStops, " strings of at most ",
                                         kMaxStopBytes, " bytes."));
  }
  return std::nullopt;
}

std::optional<ApiError> AddBias(std::string_view id_text, const json::value& bias,
                                const Model& model, AnswerPlan* plan) {
  uint32_t id = 0;
  const auto [end, ec] = std::from_chars(id_text.data(), id_text.data() + id_text.size(), id);
  if (ec != std::errc() || end != id_text.data() + id_text.size() || id >= model.vocab_size()) {
    return BadField("logit_bias",
                    absl::StrCat("'logit_bias' names '", A(id_text),
                                 "', which is not a token id below ", model.vocab_size(), "."));
  }
  if (!bias.is_number() || !std::isfinite(bias.to_number<double>())) {
    return BadField("logit_bias", "'logit_bias' must map token ids to numbers.");
  }
  const double value = std::clamp(bias.to_number<double>(), -100.0, 100.0);
  (*plan->sampling.mutable_logit_bias())[id] = static_cast<float>(value);
  return std::nullopt;
}

// {"123": -100} as OpenAI has it, or llama-server's [[123, -100], ...].
std::optional<ApiError> ReadLogitBias(const json::object& body, const Model& model,
                                      AnswerPlan* plan) {
  const json::value* biases = Field(body, "logit_bias");
  if (biases == nullptr) return std::nullopt;
  const size_t count =
      biases->is_object() ? biases->get_object().size() : biases->get_array().size();
  if (count > kMaxBiases) {
    return BadField("logit_bias", absl::StrCat("'logit_bias' takes at most ", kMaxBiases, " ids."));
  }
  if (biases->is_object()) {
    for (const auto& [key, value] : biases->get_object()) {
      auto error = AddBias({key.data(), key.size()}, value, model, plan);
      if (error) return error;
    }
    return std::nullopt;
  }
  for (const json::value& pair : biases->get_array()) {
    if (!pair.is_array() || pair.get_array().size() != 2 || !IsInteger(pair.get_array()[0])) {
      return BadField("logit_bias", "'logit_bias' as a list must hold [token id, number] pairs.");
    }
    const std::string id = std::to_string(ToInteger(pair.get_array()[0]));
    auto error = AddBias(id, pair.get_array()[1], model, plan);
    if (error) return error;
  }
  return std::nullopt;
}

std::optional<ApiError> ReadPromptRouting(const json::object& body, AnswerPlan* plan) {
  const std::string name = GetString(body, "prompt_routing");
  const auto bound = GetNumber(body, "prompt_routing_bound");
  if (bound) plan->prompt_routing_bound = static_cast<float>(*bound);
  const auto budget = GetNumber(body, "prompt_routing_budget");
  if (budget) plan->prompt_routing_budget = static_cast<float>(*budget);
  if (name == "full") {
    plan->prompt_routing = v1::FULL;
  } else if (name == "guarded") {
    plan->prompt_routing = v1::GUARDED;
  } else if (name == "resident") {
    plan->prompt_routing = v1::RESIDENT;
  } else if (!name.empty()) {
    return BadField("prompt_routing",
                    "'prompt_routing' must be \"full\", \"guarded\" or \"resident\".");
  }
  return std::nullopt;
}

std::optional<ApiError> ReadStream(const json::object& body, AnswerPlan* plan) {
  plan->stream = GetBool(body, "stream", false);
  const json::value* options = Field(body, "stream_options");
  if (options == nullptr) return std::nullopt;
  auto error = CheckFields(options->get_object(), kStreamFields, "stream_options.");
  if (error) return error;
  plan->include_usage = GetBool(options->get_object(), "include_usage", false);
  return std::nullopt;
}

std::optional<ApiError> ReadSplice(const json::object& body, AnswerPlan* plan) {
  if (Field(body, "splice") == nullptr) return std::nullopt;
  plan->splice = SpliceModeOf(GetString(body, "splice"));
  if (plan->splice != v1::SPLICE_UNSPECIFIED) return std::nullopt;
  return BadField("splice", "'splice' must be off, safe or fast.");
}

void ReadNumbers(const json::object& body, v1::SamplingParams* sampling) {
  const auto number = [&](std::string_view name, auto set) {
    const std::optional<double> value = GetNumber(body, name);
    if (value) set(static_cast<float>(*value));
  };
  number("temperature", [&](float v) { sampling->set_temperature(v); });
  number("top_p", [&](float v) { sampling->set_top_p(v); });
  number("min_p", [&](float v) { sampling->set_min_p(v); });
  number("typical_p", [&](float v) { sampling->set_typical_p(v); });
  number("repeat_penalty", [&](float v) { sampling->set_repetition_penalty(v); });
  number("repetition_penalty", [&](float v) { sampling->set_repetition_penalty(v); });
  number("presence_penalty", [&](float v) { sampling->set_presence_penalty(v); });
  number("frequency_penalty", [&](float v) { sampling->set_frequency_penalty(v); });
  if (const auto top_k = GetInteger(body, "top_k")) sampling->set_top_k(ClampToU32(*top_k));
  if (const auto last = GetInteger(body, "repeat_last_n")) {
    sampling->set_penalty_last_n(ClampToU32(*last));
  }
}

std::optional<uint64_t> NamedSeed(const json::object& body) {
  const std::optional<int64_t> seed = GetInteger(body, "seed");
  if (!seed || *seed == -1) return std::nullopt;
  return static_cast<uint64_t>(*seed);
}

}  // namespace

std::span<const FieldSpec> SamplingFields() { return kFields; }

std::optional<ApiError> ReadSampling(const json::object& body, const Model& model,
                                     AnswerPlan* plan) {
  if (auto error = CheckFields(body, kFields)) return error;
  plan->sampling = model.default_sampling();
  ReadNumbers(body, &plan->sampling);
  if (auto error = ReadStops(body, plan)) return error;
  if (auto error = ReadLogitBias(body, model, plan)) return error;
  if (auto error = ReadStream(body, plan)) return error;
  if (auto error = ReadSplice(body, plan)) return error;
  if (auto error = ReadPromptRouting(body, plan)) return error;
  plan->seeded = NamedSeed(body).has_value();
  const std::optional<int64_t> max_tokens = GetInteger(body, "max_tokens");
  if (max_tokens == 0) return BadField("max_tokens", "'max_tokens' must be at least 1.");
  if (max_tokens) plan->max_tokens = ClampToU32(*max_tokens);  // -1: until the context is full
  plan->min_tokens = ClampToU32(GetInteger(body, "min_tokens").value_or(0));
  plan->ignore_end = GetBool(body, "ignore_eos", false);
  return std::nullopt;
}

v1::SpliceMode SpliceModeOf(std::string_view name) {
  if (name == "off") return v1::SPLICE_OFF;
  if (name == "safe") return v1::SPLICE_SAFE;
  if (name == "fast") return v1::SPLICE_FAST;
  return v1::SPLICE_UNSPECIFIED;
}

v1::SpliceMode SpliceModeFor(const AnswerPlan& plan, v1::SpliceMode configured) {
  if (plan.splice != v1::SPLICE_UNSPECIFIED) return plan.splice;
  return plan.seeded || plan.logprobs ? v1::SPLICE_OFF : configured;
}

uint32_t ReadCount(const json::object& body) {
  return static_cast<uint32_t>(GetInteger(body, "n").value_or(1));
}

uint64_t ReadSeed(const json::object& body) {
  if (const std::optional<uint64_t> seed = NamedSeed(body)) return *seed;
  uint64_t random = 0;
  while (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
  }
  return random;
}

std::optional<ApiError> CheckModelName(const ApiContext& context, std::string_view name) {
  if (name.empty() || name == context.model->name()) return std::nullopt;
  const auto& aliases = context.aliases;
  if (std::find(aliases.begin(), aliases.end(), name) != aliases.end()) return std::nullopt;
  ApiError error;
  error.status = 404;
  error.code = "model_not_found";
  error.param = "model";
  error.message =
      absl::StrCat("The model '", A(name), "' does not exist here. This server has '",
                   context.model->name(), "'; further names can be set with gateway.model_alias.");
  return error;
}

int64_t UnixTime() { return static_cast<int64_t>(std::time(nullptr)); }

}  // namespace strata::gateway
