#include "cli/simulate_decoding.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/policy/make_policy.h"

#include "absl/strings/str_cat.h"

namespace strata::cli {
namespace {

constexpr uint32_t kChunkTokens = 512;

policy::Shape ShapeOf(const trace::RoutingTrace& trace, double bytes, double expert_bytes) {
  policy::Shape shape;
  const uint64_t all = uint64_t{trace.layers} * trace.experts;
  for (uint32_t e = 0; e < all; ++e) shape.layer.push_back(e / trace.experts);
  shape.size_class.assign(all, 0);
  shape.class_slots = {
      static_cast<uint32_t>(std::min(static_cast<double>(all), bytes / expert_bytes))};
  shape.used_per_layer = trace.used;
  return shape;
}

}  // namespace

trace::RoutingTrace GenerateRouting(const SimulatedModel& model, const TextLength& length,
                                    uint64_t seed) {
  trace::RoutingTrace trace{model.layers, model.experts, model.used, {}};
  RoutingGenerator generator(model, seed);
  std::vector<uint32_t> counts(model.experts);
  for (uint32_t begin = 0; begin < length.prompt; begin += kChunkTokens) {
    std::vector<std::vector<uint32_t>> chunk(model.layers, std::vector<uint32_t>(model.experts));
    for (uint32_t t = begin; t < std::min(length.prompt, begin + kChunkTokens); ++t) {
      const auto& token = generator.Next();
      for (uint32_t layer = 0; layer < model.layers; ++layer) {
        for (const uint32_t e : token[layer]) ++chunk[layer][e];
      }
    }
    for (uint32_t layer = 0; layer < model.layers; ++layer) {
      trace::Batch batch{true, layer, {}};
      for (uint32_t e = 0; e < model.experts; ++e) {
        if (chunk[layer][e] > 0) batch.uses.push_back({e, chunk[layer][e]});
      }
      trace.batches.push_back(std::move(batch));
    }
  }
  for (uint32_t t = 0; t < length.generated; ++t) {
    const auto& token = generator.Next();
    for (uint32_t layer = 0; layer < model.layers; ++layer) {
      trace::Batch batch{false, layer, {}};
      for (const uint32_t e : token[layer]) batch.uses.push_back({e, 1});
      trace.batches.push_back(std::move(batch));
    }
  }
  return trace;
}

absl::StatusOr<SimulatedDecoding> SimulateDecoding(const trace::RoutingTrace& trace,
                                                   const SimulatedModel& sizes,
                                                   const SimulatedMachine& machine,
                                                   double ram_bytes, double device_bytes,
                                                   std::string_view policy, uint32_t warmup) {
  const policy::Shape ram = ShapeOf(trace, ram_bytes, sizes.expert_bytes);
  STRATA_ASSIGN_OR_RETURN(
      TierSimulation tiers,
      TierSimulation::Create(ram, ShapeOf(trace, device_bytes, sizes.expert_bytes), policy));
  tiers.Fill();
  SimulatedDecoding result{
      std::string(policy::Choose(policy, ram)),
      {},
      TokenClock(machine, sizes.expert_bytes, sizes.dense_bytes / trace.layers)};
  uint32_t tokens = 0;
  uint32_t last_layer = UINT32_MAX;  // of the decoding record before
  std::vector<trace::Use> uses;
  for (const trace::Batch& batch : trace.batches) {
    uses = batch.uses;
    for (trace::Use& use : uses) use.expert += batch.layer * trace.experts;
    const TierCounts counts = tiers.Run(batch.prompt, uses);
    if (batch.prompt) continue;
    if (last_layer == UINT32_MAX || batch.layer <= last_layer) {
      if (tokens++ > warmup) result.clock.EndToken();
    }
    last_layer = batch.layer;
    if (tokens <= warmup) continue;
    result.clock.Layer(counts);
    result.found.device += counts.device;
    result.found.ram += counts.ram;
    result.found.drive += counts.drive;
  }
  if (tokens <= warmup) {
    return absl::InvalidArgumentError(absl::StrCat("the routing has ", tokens,
                                                   " generated tokens, of which the first ", warmup,
                                                   " do not count"));
  }
  result.clock.EndToken();
  return result;
}

}  // namespace strata::cli
