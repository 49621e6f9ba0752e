// The k largest of softmax(logits[t]) in descending order, ties to the lower index: a group of 32
// lanes for each token.
//
// Probabilities are kept in shared memory as sort keys: for floats that are not negative, the order
// of the bits is the order of the values. Logits that are not numbers count as minus infinity, so
// the ids are always k different experts.
#pragma once

#include "services/compute/gpu/device.h"
#include "services/compute/gpu/reduce.h"

namespace strata::compute::gpu {

struct RouteParams {
  const float* logits;
  int64_t logits_stride;  // floats from token to token
  int64_t tokens;
  int experts;
  int k;
  bool normalize;  // divide the weights by their sum
  int32_t* ids;
  int64_t ids_stride;
  float* weights;
  int64_t weights_stride;
};

inline constexpr unsigned kRouteThreads = 64;
inline constexpr unsigned kRouteTokens = kRouteThreads / kGroup;  // of a block
constexpr size_t RouteSharedBytes(int experts) {
  return kRouteTokens * static_cast<size_t>(experts) * sizeof(uint32_t);
}

namespace router_internal {

inline constexpr uint32_t kTaken = 0;

// Greater than kTaken for every probability.
STRATA_DEVICE uint32_t KeyOf(float probability) { return FloatBits(probability) + 1; }
STRATA_DEVICE float ProbabilityOf(uint32_t key) { return FloatFromBits(key - 1); }

// Fills `keys` with those of softmax(logits).
STRATA_DEVICE void Softmax(const float* logits, int experts, uint32_t* keys) {
  float largest = -INFINITY;
  for (int i = LaneIndex(); i < experts; i += kGroup) {
    if (logits[i] > largest) largest = logits[i];
  }
  largest = GroupMax(largest);
  float sum = 0;
  for (int i = LaneIndex(); i < experts; i += kGroup) {
    // Comparing first keeps infinity - infinity away; the second comparison turns NaN into 0.
    const float e = logits[i] == largest ? 1.0f : expf(logits[i] - largest);
    const float probability = e > 0 ? e : 0;
    keys[i] = FloatBits(probability);
    sum += probability;
  }
  sum = GroupSum(sum);
  const float inverse = sum > 0 ? 1.0f / sum : 0;
  for (int i = LaneIndex(); i < experts; i += kGroup) {
    keys[i] = KeyOf(FloatFromBits(keys[i]) * inverse);
  }
}

// The largest key's index, the lowest of equals; `key` gets the key.
STRATA_DEVICE int Largest(const uint32_t* keys, int experts, uint32_t& key) {
  uint64_t best = 0;
  for (int i = LaneIndex(); i < experts; i += kGroup) {
    // The index inverted, so that the lower one is the larger of equal keys.
    const uint64_t candidate = static_cast<uint64_t>(keys[i]) << 32 | (UINT32_MAX - i);
    if (candidate > best) best = candidate;
  }
  best = GroupMax(best);
  key = static_cast<uint32_t>(best >> 32);
  return static_cast<int>(UINT32_MAX - static_cast<uint32_t>(best));
}

}  // namespace router_internal

// One instance only; a template because kernels in headers need one (`inline` is refused).
template <typename Params>
STRATA_KERNEL void RouteKernel(Params p) {
  const int64_t token = BlockX() * kRouteTokens + GroupIndex();
  // A group beyond the last token repeats the last one's work, so that whole warps stay together,
  // and writes nothing.
  const int64_t source = token < p.tokens ? token : p.tokens - 1;
  uint32_t* keys = reinterpret_cast<uint32_t*>(SharedMemory()) + GroupIndex() * p.experts;
  router_internal::Softmax(p.logits + source * p.logits_stride, p.experts, keys);

  int32_t* ids = p.ids + source * p.ids_stride;
  float* weights = p.weights + source * p.weights_stride;
  const bool writes = token < p.tokens && LaneIndex() == 0;
  float chosen = 0;
  for (int j = 0; j < p.k; ++j) {
    uint32_t key = 0;
    const int best = router_internal::Largest(keys, p.experts, key);
    // Only the lane that owns the expert reads its key again.
    if (LaneIndex() == best % kGroup) keys[best] = router_internal::kTaken;
    const float probability = router_internal::ProbabilityOf(key);
    chosen += probability;
    if (writes) {
      ids[j] = best;
      weights[j] = probability;
    }
  }
  if (writes && p.normalize && chosen > 0) {
    for (int j = 0; j < p.k; ++j) weights[j] /= chosen;
  }
}

}  // namespace strata::compute::gpu
