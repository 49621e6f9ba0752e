// One request for generated text, independent of the dialect it came in, and the loop that answers
// it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/gateway/api/context.h"
#include "services/gateway/chat/answer_text.h"
#include "services/gateway/http/exchange.h"
#include "strata/v1/compute.pb.h"

namespace strata::gateway {

struct ChoicePlan {
  std::shared_ptr<const std::vector<uint32_t>> prompt;
  std::string echo;             // text in front of the answer
  bool first_of_prompt = true;  // prompt tokens are counted once, however many answers there are
  uint64_t seed = 0;
};

struct AnswerPlan {
  std::vector<ChoicePlan> choices;
  v1::SamplingParams sampling;
  uint32_t max_tokens = 0;  // 0 = until the context is full
  uint32_t min_tokens = 0;
  bool ignore_end = false;
  bool logprobs = false;
  uint32_t top_logprobs = 0;
  std::vector<std::string> stops;
  ParserOptions parser;
  bool single_tool_call = false;
  v1::SpliceMode splice = v1::SPLICE_UNSPECIFIED;  // the request says nothing
  bool seeded = false;                             // the request names a seed
  v1::PromptRouting prompt_routing = v1::PROMPT_ROUTING_UNSPECIFIED;
  float prompt_routing_bound = 0;   // 0 = compute's
  float prompt_routing_budget = 0;  // likewise
  bool stream = false;
  bool include_usage = false;
};

struct AnswerUsage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t spliced_tokens = 0;  // of the cached ones: approximate
  uint32_t completion_tokens = 0;
  uint32_t reasoning_tokens = 0;
  std::optional<v1::PlanResponse> plan;  // what kvstore found of the first prompt
  v1::Usage routed;  // prompt routing: its fields 4 to 8, of the last prompt that was not FULL
};

struct AnswerTimings {
  uint32_t cached_tokens = 0;
  uint32_t spliced_tokens = 0;
  uint32_t prompt_tokens = 0;  // read, without cached ones
  double prompt_ms = 0;
  uint32_t generated_tokens = 0;
  double generated_ms = 0;
};

struct ChoiceEnd {
  std::string reason;  // "stop", "length", "tool_calls"
  AnswerTimings timings;
  v1::Usage usage;                       // compute's, if it got to tell it
  std::optional<v1::PlanResponse> plan;  // kvstore's, if it was asked
};

// The JSON of a dialect. An empty string means that nothing is sent.
class AnswerShape {
 public:
  virtual ~AnswerShape() = default;
  // As soon as the stream is open, for each choice.
  virtual std::string StreamBegin(uint32_t choice) = 0;
  virtual std::vector<std::string> StreamDelta(uint32_t choice, const AnswerDelta& delta) = 0;
  virtual std::string StreamEnd(uint32_t choice, const ChoiceEnd& end) = 0;
  virtual std::string StreamUsage(const AnswerUsage& usage) = 0;
  // Not streamed: the deltas of each choice joined into one.
  virtual std::string Whole(const std::vector<AnswerDelta>& choices,
                            const std::vector<ChoiceEnd>& ends, const AnswerUsage& usage) = 0;
};

// Checks the prompt's length, queues, generates and answers. Stops all work when the client is
// gone.
boost::asio::awaitable<void> RunAnswer(ApiContext& context, Exchange& exchange,
                                       const AnswerPlan& plan, AnswerShape& shape);

// The error for a failed engine call.
ApiError EngineError(const absl::Status& status);

}  // namespace strata::gateway
