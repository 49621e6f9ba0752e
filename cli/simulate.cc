// `strata simulate`: what a machine would do that is not here.
#include <iostream>
#include <vector>

#include "cli/command.h"
#include "cli/simulate_decoding.h"
#include "common/base/status.h"
#include "common/trace/routing_trace.h"

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(std::string, shape, "qwen3-30b",
          "simulate: qwen3-30b, qwen3.8-flash-next or deepseek-v4.1-flash; without a trace its "
          "routing is generated, with one it gives the sizes.");
ABSL_FLAG(std::vector<std::string>, ram_gb, std::vector<std::string>({"8", "16", "32"}),
          "simulate: RAM for experts, one row of the table for each.");
ABSL_FLAG(double, vram_gb, 0, "simulate: device memory for experts; 0 = no device.");
ABSL_FLAG(double, ram_gbs, 60, "simulate: GB/s that RAM delivers.");
ABSL_FLAG(double, vram_gbs, 400, "simulate: GB/s that device memory delivers.");
ABSL_FLAG(double, drive_gbs, 6, "simulate: GB/s that the drive delivers.");
ABSL_FLAG(double, drive_us, 100, "simulate: microseconds until a read delivers its first byte.");
ABSL_FLAG(std::vector<std::string>, policy, std::vector<std::string>({"auto"}),
          "simulate: auto, lru, layer-lru or lfu; of several, a row of the table for each.");
ABSL_FLAG(double, expert_mb, 0, "simulate: megabytes of an expert; 0 = those of --shape.");
ABSL_FLAG(uint32_t, sim_prompt, 512, "simulate: tokens of the generated prompt.");
ABSL_FLAG(uint32_t, sim_tokens, 512, "simulate: tokens generated after it.");
ABSL_FLAG(uint32_t, sim_warmup, 128, "simulate: of these, the first that the table leaves out.");
ABSL_FLAG(uint64_t, sim_seed, 1, "simulate: of the generated routing.");

namespace strata::cli {
namespace {

// A row of the table: what decoding after the warm-up would be.
absl::Status PrintRow(const trace::RoutingTrace& trace, const SimulatedModel& sizes,
                      const SimulatedMachine& machine, double ram_bytes, double device_bytes,
                      const std::string& policy, uint32_t warmup) {
  STRATA_ASSIGN_OR_RETURN(
      const SimulatedDecoding decoding,
      SimulateDecoding(trace, sizes, machine, ram_bytes, device_bytes, policy, warmup));
  const TierCounts& found = decoding.found;
  const TokenClock& clock = decoding.clock;
  const auto share = [&](uint64_t count) {
    return 100.0 * static_cast<double>(count) / static_cast<double>(found.all());
  };
  std::cout << absl::StreamFormat(
      "| %.0f | %s | %.1f %% | %.1f %% | %.1f %% | %.1f | %.1f | %.2f | %.2f |\n", ram_bytes / 1e9,
      decoding.policy, share(found.device), share(found.ram), share(found.drive),
      clock.drive_bytes_per_token() / 1e6, 1e3 * clock.stall_per_token(),
      1 / clock.seconds_per_token(), 1 / clock.least_seconds_per_token());
  return absl::OkStatus();
}

}  // namespace

absl::Status Simulate(std::span<const std::string> arguments) {
  STRATA_RETURN_IF_ERROR(ExpectAtMost(arguments, 1));
  const SimulatedModel* const named = FindSimulatedModel(absl::GetFlag(FLAGS_shape));
  if (named == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shape=", absl::GetFlag(FLAGS_shape),
                     " is not one of: qwen3-30b, qwen3.8-flash-next, deepseek-v4.1-flash"));
  }
  SimulatedModel sizes = *named;
  if (absl::GetFlag(FLAGS_expert_mb) > 0) sizes.expert_bytes = 1e6 * absl::GetFlag(FLAGS_expert_mb);
  trace::RoutingTrace trace;
  if (arguments.empty()) {
    trace =
        GenerateRouting(sizes, {absl::GetFlag(FLAGS_sim_prompt), absl::GetFlag(FLAGS_sim_tokens)},
                        absl::GetFlag(FLAGS_sim_seed));
  } else {
    STRATA_ASSIGN_OR_RETURN(trace, trace::ReadFile(arguments[0]));
  }
  SimulatedMachine machine;
  const double device_bytes = 1e9 * absl::GetFlag(FLAGS_vram_gb);
  machine.ram_rate = 1e9 * absl::GetFlag(FLAGS_ram_gbs);
  machine.device_rate = device_bytes > 0 ? 1e9 * absl::GetFlag(FLAGS_vram_gbs) : 0;
  machine.drive_rate = 1e9 * absl::GetFlag(FLAGS_drive_gbs);
  machine.drive_latency = 1e-6 * absl::GetFlag(FLAGS_drive_us);
  if (!(machine.ram_rate > 0 && machine.drive_rate > 0 && machine.device_rate >= 0)) {
    return absl::InvalidArgumentError("--ram_gbs, --vram_gbs and --drive_gbs must be above 0");
  }
  std::cout << absl::StreamFormat(
      "%s: %d layers x %d experts, %d used, %.2f MB each, %.1f GB in all; routing %s\n\n"
      "| RAM GB | policy | device | RAM | drive | MB/token from drive | stall ms/token | tok/s "
      "| limit tok/s |\n|---|---|---|---|---|---|---|---|---|\n",
      std::string(sizes.name), trace.layers, trace.experts, trace.used, sizes.expert_bytes / 1e6,
      sizes.expert_bytes * trace.layers * trace.experts / 1e9,
      arguments.empty() ? "generated" : arguments[0]);
  for (const std::string& text : absl::GetFlag(FLAGS_ram_gb)) {
    double gigabytes = 0;
    if (!absl::SimpleAtod(text, &gigabytes) || !(gigabytes > 0)) {
      return absl::InvalidArgumentError(absl::StrCat("--ram_gb: \"", text, "\" is no size"));
    }
    for (const std::string& policy : absl::GetFlag(FLAGS_policy)) {
      STRATA_RETURN_IF_ERROR(PrintRow(trace, sizes, machine, 1e9 * gigabytes, device_bytes, policy,
                                      absl::GetFlag(FLAGS_sim_warmup)));
    }
  }
  return absl::OkStatus();
}

}  // namespace strata::cli
