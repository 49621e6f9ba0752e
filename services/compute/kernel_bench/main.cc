// strata-kernel-bench: how fast this machine multiplies with weights of each type.
//
//   strata-kernel-bench [--threads=N] [--isa=NAME] [TYPE...]
//
// One row of the table for each type (default: all that a model may have). "Gw/s" counts weights
// times activation rows, per core. One row is decoding: from the cache it shows the arithmetic,
// from memory what decoding gets. 128 rows are a piece of a prompt.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/base/read_bandwidth.h"
#include "common/base/status.h"
#include "services/compute/cpu/cpu_backend.h"
#include "services/compute/cpu/topology.h"
#include "services/compute/kernel_bench/product_case.h"

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(uint32_t, threads, 0, "Threads; 0 = one for each physical core.");
ABSL_FLAG(std::string, isa, "auto", "Instruction set of the kernels: see compute.isa.");

namespace strata::compute {
namespace {

constexpr int kPasses = 5;
constexpr int64_t kRows[] = {1, 4, 8, 32, 128};

absl::StatusOr<std::vector<TensorType>> ChosenTypes(const std::vector<std::string>& names) {
  std::vector<TensorType> types;
  for (const std::string& name : names) {
    const TensorTypeInfo* info = FindTensorType(std::string_view(name));
    if (info == nullptr || !testing::IsWeightType(info->type)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", name, "' is not a type of weights; Q4_K is one"));
    }
    types.push_back(info->type);
  }
  if (!names.empty()) return types;
  for (const TensorTypeInfo& info : AllTensorTypes()) {
    if (testing::IsWeightType(info.type)) types.push_back(info.type);
  }
  return types;
}

// Seconds of the fastest pass; the first one warms up and is not counted.
absl::StatusOr<double> BestSeconds(Backend* backend, const ProductShape& shape) {
  STRATA_ASSIGN_OR_RETURN(const auto product, ProductCase::Create(backend, shape));
  product->Run();
  double best = product->Run();
  for (int pass = 1; pass < kPasses; ++pass) best = std::min(best, product->Run());
  return best;
}

absl::Status Main(const std::vector<std::string>& arguments) {
  STRATA_ASSIGN_OR_RETURN(const std::vector<TensorType> types, ChosenTypes(arguments));
  const uint32_t wanted = absl::GetFlag(FLAGS_threads);
  const int threads = wanted > 0 ? static_cast<int>(wanted) : UsableCores().count;
  const std::string isa = absl::GetFlag(FLAGS_isa);
  STRATA_ASSIGN_OR_RETURN(const auto all, CreateCpuBackend({.threads = threads, .isa = isa}));
  STRATA_ASSIGN_OR_RETURN(const auto one, CreateCpuBackend({.threads = 1, .isa = isa}));
  STRATA_ASSIGN_OR_RETURN(const double bandwidth, MeasureReadBandwidth(threads));

  std::cout << absl::StreamFormat("%s; memory reads %.1f GB/s\n\n", A(all->description()),
                                  bandwidth / 1e9)
            << "| type | bits | Gw/s per core, 1 row from cache |";
  for (const int64_t rows : kRows) std::cout << " " << rows << (rows == 1 ? " row |" : " rows |");
  std::cout << " GB/s at 1 row | of bandwidth |\n|---|---|---|";
  for (size_t i = 0; i < std::size(kRows); ++i) std::cout << "---|";
  std::cout << "---|---|\n";
  for (const TensorType type : types) {
    const TensorTypeInfo& info = InfoOf(type);
    std::cout << absl::StreamFormat("| %s | %.2f |", A(info.name),
                                    8.0 * info.block_bytes / info.block_values);
    const ProductShape cached = FromCache(type);
    STRATA_ASSIGN_OR_RETURN(const double seconds, BestSeconds(one.get(), cached));
    std::cout << absl::StreamFormat(" %.1f |", cached.products() / seconds / 1e9);
    double rate = 0;  // bytes per second at one row
    for (const int64_t rows : kRows) {
      const ProductShape shape = FromMemory(type, rows);
      STRATA_ASSIGN_OR_RETURN(const double best, BestSeconds(all.get(), shape));
      if (rows == 1) rate = shape.bytes() / best;
      std::cout << absl::StreamFormat(" %.1f |", shape.products() / best / threads / 1e9);
    }
    std::cout << absl::StreamFormat(" %.1f | %.0f %% |\n", rate / 1e9, 100 * rate / bandwidth)
              << std::flush;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace strata::compute

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "strata-kernel-bench: the speed of matrix products with each type of weights. Usage: "
      "strata-kernel-bench [flags] [TYPE...]");
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  const absl::Status status = strata::compute::Main({rest.begin() + 1, rest.end()});
  if (!status.ok()) strata::LogError(status.message());
  return status.ok() ? 0 : 1;
}
