// The JSON of text_completion.
#pragma once

#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "services/gateway/api/answer.h"

namespace strata::gateway {

class CompletionShape : public AnswerShape {
 public:
  CompletionShape(const Model* model, std::string model_label, const AnswerPlan* plan);

  std::string StreamBegin(uint32_t choice) override;
  std::vector<std::string> StreamDelta(uint32_t choice, const AnswerDelta& delta) override;
  std::string StreamEnd(uint32_t choice, const ChoiceEnd& end) override;
  std::string StreamUsage(const AnswerUsage& usage) override;
  std::string Whole(const std::vector<AnswerDelta>& choices, const std::vector<ChoiceEnd>& ends,
                    const AnswerUsage& usage) override;

 private:
  boost::json::object Envelope() const;
  std::string Chunk(uint32_t choice, std::string_view text, boost::json::value logprobs,
                    boost::json::value finish, const AnswerTimings* timings) const;
  // Four parallel lists; offsets count bytes of the answer's text.
  boost::json::value Logprobs(uint32_t choice, const std::vector<v1::GeneratedToken>& tokens);

  const Model* const model_;
  const std::string label_;
  const AnswerPlan* const plan_;
  const std::string id_;
  const int64_t created_;
  std::vector<uint64_t> offsets_;  // by choice
};

}  // namespace strata::gateway
