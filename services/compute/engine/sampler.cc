#include "services/compute/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/status.h"

namespace strata::compute {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

absl::Status CheckRange(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();  // false for NaN
  return absl::InvalidArgumentError(
      absl::StrCat(field, " = ", value, " is outside [", low, ", ", high, "]"));
}

// More likely first; among equals the lower id, so that the order never depends on the sort.
bool Before(float a_logit, int32_t a_id, float b_logit, int32_t b_id) {
  return a_logit != b_logit ? a_logit > b_logit : a_id < b_id;
}

double LogSumExp(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - top);
  return top + std::log(sum);
}

}  // namespace

double PositionNoise(uint64_t seed, uint64_t position) {
  return static_cast<double>(Mix(Mix(seed) ^ position) >> 11) * 0x1p-53;
}

absl::Status ValidateSampling(const v1::SamplingParams& params, int vocab_size) {
  STRATA_RETURN_IF_ERROR(CheckRange("temperature", params.temperature(), 0, 100));
  if (params.has_top_p()) STRATA_RETURN_IF_ERROR(CheckRange("top_p", params.top_p(), 0, 1));
  if (params.has_min_p()) STRATA_RETURN_IF_ERROR(CheckRange("min_p", params.min_p(), 0, 1));
  if (params.has_typical_p()) {
    STRATA_RETURN_IF_ERROR(CheckRange("typical_p", params.typical_p(), 0, 1));
  }
  if (params.has_repetition_penalty()) {
    STRATA_RETURN_IF_ERROR(
        CheckRange("repetition_penalty", params.repetition_penalty(), 0.01, 100));
  }
  STRATA_RETURN_IF_ERROR(CheckRange("presence_penalty", params.presence_penalty(), -100, 100));
  STRATA_RETURN_IF_ERROR(CheckRange("frequency_penalty", params.frequency_penalty(), -100, 100));
  for (const auto& [id, bias] : params.logit_bias()) {
    if (id >= static_cast<uint32_t>(vocab_size)) {
      return absl::InvalidArgumentError(
          absl::StrCat("logit_bias: token ", id, " is outside the vocabulary of ", vocab_size));
    }
    if (std::isnan(bias)) return absl::InvalidArgumentError("logit_bias: a value is not a number");
  }
  return absl::OkStatus();
}

bool Sampler::MoreLikely(const Candidate& a, const Candidate& b) {
  return Before(a.logit, a.id, b.logit, b.id);
}

Sampler::Sampler(v1::SamplingParams params, int vocab_size) : params_(std::move(params)) {
  candidates_.reserve(static_cast<size_t>(vocab_size));
}

void Sampler::Observe(uint32_t token, bool generated) {
  const size_t window = params_.penalty_last_n();
  const bool repetition = params_.has_repetition_penalty() && params_.repetition_penalty() != 1;
  const bool additive = params_.presence_penalty() != 0 || params_.frequency_penalty() != 0;
  if (repetition) seen_.Add(token, window);
  if (additive && generated) generated_.Add(token, window);
}

void Sampler::Counter::Add(uint32_t token, size_t window) {
  history.push_back(token);
  ++counts[token];
  if (window == 0 || history.size() <= window) return;
  const auto it = counts.find(history[history.size() - 1 - window]);
  if (--it->second == 0) counts.erase(it);
}

void Sampler::ApplyPenalties(std::span<float> logits) const {
  for (const auto& [token, count] : seen_.counts) {
    float& logit = logits[token];
    logit = logit > 0 ? logit / params_.repetition_penalty() : logit * params_.repetition_penalty();
  }
  for (const auto& [token, count] : generated_.counts) {
    logits[token] -=
        params_.presence_penalty() + static_cast<float>(count) * params_.frequency_penalty();
  }
}

int32_t Sampler::Sample(std::span<float> logits, uint64_t position,
                        std::span<const uint32_t> forbidden) {
  for (const auto& [id, bias] : params_.logit_bias()) logits[id] += bias;
  ApplyPenalties(logits);
  for (const uint32_t id : forbidden) logits[id] = kNever;
  if (params_.temperature() == 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  return Draw(logits, position);
}

void Sampler::Normalize() {
  double top = kNever;
  for (const Candidate& c : candidates_) top = std::max<double>(top, c.logit);
  double sum = 0;
  for (Candidate& c : candidates_) sum += c.probability = std::exp(c.logit - top);
  for (Candidate& c : candidates_) c.probability /= sum;
}

void Sampler::KeepTopK(size_t k) {
  if (k == 0 || k >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(k),
                   candidates_.end(), MoreLikely);
  candidates_.resize(k);
}

void Sampler::KeepTypical(double p) {
  Normalize();
  double entropy = 0;
  for (const Candidate& c : candidates_) {
    if (c.probability > 0) entropy -= c.probability * std::log(c.probability);
  }
  const auto distance = [&](const Candidate& c) {
    return std::abs(-std::log(std::max(c.probability, 1e-300)) - entropy);
  };
  std::stable_sort(
      candidates_.begin(), candidates_.end(),
      [&](const Candidate& a, const Candidate& b) { return distance(a) < distance(b); });
  double mass = 0;
  size_t n = 0;
  while (n < candidates_.size() && mass < p) mass += candidates_[n++].probability;
  candidates_.resize(std::max<size_t>(n, 1));
}

void Sampler::KeepTopP(double p) {
  Normalize();
  // The nucleus is usually small: sort only as much of the front as it needs.
  size_t sorted = 0;
  size_t n = 0;
  double mass = 0;
  while (n < candidates_.size() && mass < p) {
    if (n == sorted) {
      const size_t more = std::min(candidates_.size(), std::max<size_t>(64, 4 * sorted));
      std::partial_sort(candidates_.begin() + static_cast<ptrdiff_t>(sorted),
                        candidates_.begin() + static_cast<ptrdiff_t>(more), candidates_.end(),
                        MoreLikely);
      sorted = more;
    }
    mass += candidates_[n++].probability;
  }
  candidates_.resize(std::max<size_t>(n, 1));
}

void Sampler::KeepMinP(double p) {
  Normalize();
  double top = 0;
  for (const Candidate& c : candidates_) top = std::max(top, c.probability);
  std::erase_if(candidates_, [&](const Candidate& c) { return c.probability < p * top; });
}

int32_t Sampler::Draw(std::span<const float> logits, uint64_t position) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != kNever) {
      candidates_.push_back({logits[i] / params_.temperature(), static_cast<int32_t>(i), 0});
    }
  }
  if (candidates_.empty()) return 0;  // everything is forbidden: any choice is as good
  KeepTopK(params_.top_k());
  if (params_.has_typical_p() && params_.typical_p() < 1) KeepTypical(params_.typical_p());
  if (params_.has_top_p() && params_.top_p() < 1) KeepTopP(params_.top_p());
  if (params_.has_min_p() && params_.min_p() > 0) KeepMinP(params_.min_p());
  Normalize();
  // The cuts leave an order that depends on their algorithm; the draw must not.
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  double remaining = PositionNoise(params_.seed(), position);
  for (const Candidate& c : candidates_) {
    remaining -= c.probability;
    if (remaining < 0) return c.id;
  }
  return candidates_.back().id;  // rounding left a sliver above the last boundary
}

TokenProbability LogProbability(std::span<const float> logits, int32_t token, int top,
                                std::vector<TokenProbability>* most_likely) {
  const double total = LogSumExp(logits);
  if (top > 0 && most_likely != nullptr) {
    const size_t n = std::min(static_cast<size_t>(top), logits.size());
    std::vector<int32_t> ids(logits.size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    std::partial_sort(
        ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n), ids.end(), [&](int32_t a, int32_t b) {
          return Before(logits[static_cast<size_t>(a)], a, logits[static_cast<size_t>(b)], b);
        });
    most_likely->clear();
    for (size_t i = 0; i < n; ++i) {
      most_likely->push_back(
          {ids[i], static_cast<float>(logits[static_cast<size_t>(ids[i])] - total)});
    }
  }
  return {token, static_cast<float>(logits[static_cast<size_t>(token)] - total)};
}

}  // namespace strata::compute
