#include "services/compute/models/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "common/base/status.h"
#include "common/quant/decode.h"

namespace strata::compute {

absl::StatusOr<RopeParameters> ReadRope(const HyperParameters& parameters, int head_dim,
                                        int context_trained) {
  RopeParameters rope;
  STRATA_ASSIGN_OR_RETURN(rope.rotary, parameters.Get("rope.dimension_count", head_dim));
  if (rope.rotary <= 0 || rope.rotary > head_dim || rope.rotary % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("metadata rope.dimension_count = ", rope.rotary,
                                                   " does not fit heads of ", head_dim,
                                                   " dimensions"));
  }
  STRATA_ASSIGN_OR_RETURN(rope.base, parameters.GetFloat("rope.freq_base", 10000.0f));
  STRATA_ASSIGN_OR_RETURN(const std::string type,
                          parameters.GetString("rope.scaling.type", "none"));
  if (type == "none") return rope;
  STRATA_ASSIGN_OR_RETURN(rope.factor, parameters.GetFloat("rope.scaling.factor", 1.0f));
  if (rope.factor <= 0) rope.factor = 1;
  if (type == "linear") {
    rope.scaling = RopeParameters::Scaling::kLinear;
    return rope;
  }
  if (type == "yarn") {
    rope.scaling = RopeParameters::Scaling::kYarn;
    STRATA_ASSIGN_OR_RETURN(
        const int original,
        parameters.Get("rope.scaling.original_context_length", context_trained));
    rope.original_context = original;
    STRATA_ASSIGN_OR_RETURN(rope.attention_factor,
                            parameters.GetFloat("rope.scaling.attn_factor", 1.0f));
    STRATA_ASSIGN_OR_RETURN(rope.beta_fast,
                            parameters.GetFloat("rope.scaling.yarn_beta_fast", 32.0f));
    STRATA_ASSIGN_OR_RETURN(rope.beta_slow,
                            parameters.GetFloat("rope.scaling.yarn_beta_slow", 1.0f));
    return rope;
  }
  return absl::UnimplementedError(
      absl::StrCat("rope.scaling.type \"", type, "\" is not known; known are none, linear, yarn"));
}

std::vector<float> InverseFrequencies(const RopeParameters& rope) {
  const int pairs = rope.rotary / 2;
  std::vector<float> frequencies(static_cast<size_t>(pairs));
  // YaRN: index of the pair that turns `rotations` times over the original context.
  const auto pair_of = [&](double rotations) {
    return rope.rotary * std::log(rope.original_context / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.base));
  };
  const double low = rope.scaling == RopeParameters::Scaling::kYarn
                         ? std::max(0.0, std::floor(pair_of(rope.beta_fast)))
                         : 0;
  const double high = rope.scaling == RopeParameters::Scaling::kYarn
                          ? std::min(rope.rotary - 1.0, std::ceil(pair_of(rope.beta_slow)))
                          : 0;
  for (int i = 0; i < pairs; ++i) {
    const double f = std::pow(rope.base, -2.0 * i / rope.rotary);
    double kept = 1;  // share of the unscaled frequency
    if (rope.scaling == RopeParameters::Scaling::kLinear) kept = 0;
    if (rope.scaling == RopeParameters::Scaling::kYarn) {
      kept = 1 - std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);
    }
    frequencies[static_cast<size_t>(i)] =
        static_cast<float>(f * kept + f / rope.factor * (1 - kept));
  }
  return frequencies;
}

float RopeMagnitude(const RopeParameters& rope) {
  if (rope.scaling != RopeParameters::Scaling::kYarn) return 1;
  return static_cast<float>(rope.attention_factor * (1 + 0.1 * std::log(rope.factor)));
}

absl::StatusOr<Rope> Rope::Load(WeightLoader& loader, const RopeParameters& parameters) {
  std::vector<float> frequencies = InverseFrequencies(parameters);
  if (const gguf::TensorInfo* divisors = loader.file().Find("rope_freqs.weight")) {
    if (divisors->type != TensorType::kF32 || divisors->values() != frequencies.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor 'rope_freqs.weight' has ", divisors->values(), " values of type ",
                       A(NameOf(divisors->type)), "; expected ", frequencies.size(), " of f32"));
    }
    std::vector<float> values(frequencies.size());
    quant::DecodeRow(TensorType::kF32, loader.file().Data(*divisors).data(), values.data(),
                     static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < values.size(); ++i) frequencies[i] /= values[i];
  }
  Rope rope;
  rope.magnitude_ = RopeMagnitude(parameters);
  const size_t bytes = frequencies.size() * sizeof(float);
  STRATA_ASSIGN_OR_RETURN(rope.memory_, loader.backend().Allocate(bytes, "rotary frequencies"));
  loader.backend().CopyToDevice(rope.memory_->data(), std::as_bytes(std::span(frequencies)));
  rope.inv_freq_ = {TensorType::kF32, 1, static_cast<int64_t>(frequencies.size()), bytes,
                    rope.memory_->data()};
  return rope;
}

}  // namespace strata::compute
