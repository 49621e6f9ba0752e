// A text read and answered by a model whose experts lie in tiers: routing, what is found where, and
// the speed that comes of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/simulate_routing.h"
#include "cli/simulate_tiers.h"
#include "common/trace/routing_trace.h"

#include "absl/status/statusor.h"

namespace strata::cli {

struct TextLength {
  uint32_t prompt = 512;  // read in chunks of 512
  uint32_t generated = 512;
};

// Routing of one text with the statistics of `model`.
trace::RoutingTrace GenerateRouting(const SimulatedModel& model, const TextLength& length,
                                    uint64_t seed);

struct SimulatedDecoding {
  std::string policy;  // the one that "auto" chose
  TierCounts found;
  TokenClock clock;
};

// Decoding of what the trace generates after its first `warmup` tokens. InvalidArgument if nothing
// is left, or for an unknown policy.
absl::StatusOr<SimulatedDecoding> SimulateDecoding(const trace::RoutingTrace& trace,
                                                   const SimulatedModel& sizes,
                                                   const SimulatedMachine& machine,
                                                   double ram_bytes, double device_bytes,
                                                   std::string_view policy, uint32_t warmup);

}  // namespace strata::cli
