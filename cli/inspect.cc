// `strata inspect FILE`: what a model file holds and whether it fits this machine.
#include <algorithm>
#include <iostream>
#include <thread>

#include "cli/command.h"
#include "cli/daemon_set.h"
#include "cli/simulate_decoding.h"
#include "common/base/drive_rate.h"
#include "common/base/memory_info.h"
#include "common/base/read_bandwidth.h"
#include "common/base/status.h"
#include "common/gguf/describe.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(bool, tensors, false, "inspect: a line for each tensor instead of one for each type.");

namespace strata::cli {
namespace {

// Generated routing with the statistics of Qwen3-30B: of this model's own nothing is known yet.
std::string ExpectedSpeed(const gguf::ModelCost& cost, const gguf::ExpertGeometry& geometry,
                          uint64_t arena_bytes, double ram_rate, const std::string& path) {
  const absl::StatusOr<double> drive = MeasureDriveRate(path);
  if (!drive.ok()) return absl::StrCat("The drive could not be timed: ", drive.status().message());
  SimulatedModel model = *FindSimulatedModel("qwen3-30b");
  model.layers = static_cast<uint32_t>(geometry.layers.size());
  for (const gguf::ExpertLayer& layer : geometry.layers) {
    model.experts = std::max(model.experts, layer.experts);
  }
  model.used = cost.used_experts;
  model.expert_bytes = static_cast<double>(cost.expert_bytes) / model.layers / model.experts;
  model.dense_bytes = static_cast<double>(cost.dense_bytes);
  SimulatedMachine machine;
  machine.ram_rate = ram_rate;
  machine.drive_rate = *drive;
  constexpr uint32_t kWarmup = 64;
  constexpr uint32_t kTokens = 192;
  const auto decoding =
      SimulateDecoding(GenerateRouting(model, {512, kTokens}, /*seed=*/1), model, machine,
                       static_cast<double>(arena_bytes), /*device_bytes=*/0, "auto", kWarmup);
  if (!decoding.ok()) {
    return absl::StrCat("Its speed cannot be estimated: ", decoding.status().message());
  }
  return absl::StrFormat(
      "The drive delivers %.1f GB/s: with experts used as Qwen3-30B uses them, %.0f %% are found "
      "in "
      "memory, about %.1f tokens per second (strata simulate for other machines).",
      *drive / 1e9,
      100.0 * static_cast<double>(decoding->found.ram) / static_cast<double>(decoding->found.all()),
      1 / decoding->clock.seconds_per_token());
}

}  // namespace

absl::Status Inspect(std::span<const std::string> arguments) {
  STRATA_RETURN_IF_ERROR(ExpectAtMost(arguments, 1));
  STRATA_ASSIGN_OR_RETURN(const std::string path, FindModel(arguments.empty() ? "" : arguments[0]));
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<gguf::Model> model, gguf::Model::Open(path));
  const absl::StatusOr<double> rate =
      MeasureReadBandwidth(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  gguf::DescribeOptions options;
  options.memory = {TotalMemory(), AvailableMemory(), rate.ok() ? *rate : 0};
  options.every_tensor = absl::GetFlag(FLAGS_tensors);
  if (rate.ok()) {
    options.expected_speed = [&](const auto& cost, const auto& geometry, uint64_t arena_bytes) {
      return ExpectedSpeed(cost, geometry, arena_bytes, *rate, path);
    };
  }
  std::cout << gguf::Describe(*model, options);
  return absl::OkStatus();
}

}  // namespace strata::cli
