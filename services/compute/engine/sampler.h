// From logits to a token.
//
// Order: logit bias, penalties, temperature, top-k, typical-p, top-p, min-p, draw. The noise of
// position p depends on (seed, p) only, not on what was drawn before, so an answer that is resumed
// in another process goes on as it would have. Temperature 0 takes the largest logit (the lowest id
// among equals).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strata/v1/model.pb.h"

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace strata::compute {

// Uniform in [0, 1) with 53 random bits, a pure function of its arguments (SplitMix64 finaliser
// applied twice to seed and position).
double PositionNoise(uint64_t seed, uint64_t position);

// InvalidArgument, naming field and value, for NaN, infinities and values outside their range.
absl::Status ValidateSampling(const v1::SamplingParams& params, int vocab_size);

struct TokenProbability {
  int32_t id = 0;
  float logprob = 0;  // natural logarithm, of the model's own distribution before any modification
};

class Sampler {
 public:
  Sampler(v1::SamplingParams params, int vocab_size);

  // Counts a token of the sequence for the penalties. The repetition penalty looks at prompt and
  // answer, presence and frequency penalty at the answer alone (as the OpenAI API defines them).
  void Observe(uint32_t token, bool generated);

  // The next token for `position` (the index it will have in the sequence). `forbidden` tokens are
  // never chosen. Changes `logits`.
  int32_t Sample(std::span<float> logits, uint64_t position, std::span<const uint32_t> forbidden);

 private:
  struct Candidate {
    float logit;
    int32_t id;
    double probability;
  };
  // Tokens inside the look-back window.
  struct Counter {
    void Add(uint32_t token, size_t window);
    std::vector<uint32_t> history;
    absl::flat_hash_map<uint32_t, uint32_t> counts;
  };

  static bool MoreLikely(const Candidate& a, const Candidate& b);
  void ApplyPenalties(std::span<float> logits) const;
  int32_t Draw(std::span<const float> logits, uint64_t position);
  // Each narrows candidates_ to what the named cut keeps.
  void KeepTopK(size_t k);
  void KeepTypical(double p);
  void KeepTopP(double p);
  void KeepMinP(double p);
  void Normalize();

  v1::SamplingParams params_;
  Counter seen_;
  Counter generated_;
  std::vector<Candidate> candidates_;
};

// Log-probability of `token` and the `top` most likely tokens, from unmodified logits.
TokenProbability LogProbability(std::span<const float> logits, int32_t token, int top,
                                std::vector<TokenProbability>* most_likely);

}  // namespace strata::compute
