// The JSON of chat.completion and chat.completion.chunk.
#pragma once

#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "services/gateway/api/answer.h"

namespace strata::gateway {

class ChatShape : public AnswerShape {
 public:
  ChatShape(const Model* model, std::string model_label, bool logprobs, bool include_usage);

  std::string StreamBegin(uint32_t choice) override;
  std::vector<std::string> StreamDelta(uint32_t choice, const AnswerDelta& delta) override;
  std::string StreamEnd(uint32_t choice, const ChoiceEnd& end) override;
  std::string StreamUsage(const AnswerUsage& usage) override;
  std::string Whole(const std::vector<AnswerDelta>& choices, const std::vector<ChoiceEnd>& ends,
                    const AnswerUsage& usage) override;

 private:
  std::string Chunk(uint32_t choice, boost::json::object delta, boost::json::value finish,
                    boost::json::value logprobs, const AnswerTimings* timings);
  boost::json::value Logprobs(const std::vector<v1::GeneratedToken>& tokens) const;

  const Model* const model_;
  const std::string label_;
  const bool logprobs_;
  const bool include_usage_;
  const std::string id_;
  const int64_t created_;
  std::vector<uint32_t> calls_;  // tool calls begun so far, by choice
};

// Shared by both dialects.
boost::json::object UsageJson(const AnswerUsage& usage);
boost::json::object TimingsJson(const AnswerTimings& timings);

}  // namespace strata::gateway
