// The fields that chat and plain completions share: sampling, limits, stop strings, streaming.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "services/gateway/api/answer.h"
#include "services/gateway/api/fields.h"

namespace strata::gateway {

std::span<const FieldSpec> SamplingFields();

// Reads them into the plan (all but the choices). The first wrong one is the error.
std::optional<ApiError> ReadSampling(const boost::json::object& body, const Model& model,
                                     AnswerPlan* plan);

// "off", "safe" or "fast"; unspecified for anything else.
v1::SpliceMode SpliceModeOf(std::string_view name);
// What a request wants: what it says, else what the server is configured for. But who names a seed
// wants the same answer again, and who asks for probabilities wants them exact: both are read in
// full unless they say otherwise.
v1::SpliceMode SpliceModeFor(const AnswerPlan& plan, v1::SpliceMode configured);

// Number of answers that `n` asks for, and the seed of the first.
uint32_t ReadCount(const boost::json::object& body);
uint64_t ReadSeed(const boost::json::object& body);

// The model that a request names must be ours: 404 otherwise.
std::optional<ApiError> CheckModelName(const ApiContext& context, std::string_view name);

// Seconds since 1970.
int64_t UnixTime();

}  // namespace strata::gateway
