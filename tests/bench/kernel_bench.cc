// Matrix products of every weight type beside llama.cpp's, in the same run: what `strata bench
// kernels` prints, with the peer.
//
// Rows is the number of activation rows: 1 is decoding one stream, 128 a prompt; "cache" is one row
// on one thread with weights in its second-level cache. "Gw/s" counts weights x rows, per core.
// "bw" is our share of the read bandwidth, "mul" of the products that the multipliers can form
// (multiplier_peak.h). The last column divides our speed by llama.cpp's better
// one (plain or repacked).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/read_bandwidth.h"
#include "services/compute/cpu/cpu_backend.h"
#include "services/compute/cpu/topology.h"
#include "services/compute/kernel_bench/multiplier_peak.h"
#include "services/compute/kernel_bench/product_case.h"
#include "tests/bench/ggml_product.h"

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"

ABSL_FLAG(int, threads, 0, "threads of both sides; 0 = physical cores");
ABSL_FLAG(std::string, isa, "auto", "instruction set of our kernels");
ABSL_FLAG(std::vector<std::string>, types, {}, "weight types; empty: all");
ABSL_FLAG(std::vector<std::string>, rows,
          (std::vector<std::string>{"cache", "1", "4", "8", "32", "128"}),
          "numbers of activation rows");
ABSL_FLAG(int, passes, 5, "passes; the best counts");

namespace strata::bench {
namespace {

using compute::Backend;
using compute::ProductCase;
using compute::ProductShape;

struct Side {
  std::function<double()> run;  // null: the peer has no such kernel; returns seconds
  double best = 1e30;
};

void RunCase(Backend* backend, const oracle::LlamaLibrary* llama, const ProductShape& shape,
             const std::string& name, int threads, double bandwidth, double peak) {
  const auto ours = ProductCase::Create(backend, shape);
  if (!ours.ok()) {
    std::fprintf(stderr, "%s\n", std::string(ours.status().message()).c_str());
    return;
  }
  std::vector<Side> sides;
  sides.push_back({[&] { return (*ours)->Run(); }});
  std::unique_ptr<GgmlProduct> peers[2];
  for (int repack = 0; repack < 2 && llama != nullptr; ++repack) {
    peers[repack] = GgmlProduct::Create(*llama, shape, (*ours)->weight(), (*ours)->activations(),
                                        threads, repack != 0);
    GgmlProduct* peer = peers[repack].get();
    Side side;
    if (peer != nullptr) {
      side.run = [peer] {
        const auto begin = std::chrono::steady_clock::now();
        peer->Run();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      };
    }
    sides.push_back(side);
  }
  for (int pass = 0; pass < absl::GetFlag(FLAGS_passes) + 1; ++pass) {
    for (Side& side : sides) {
      if (side.run == nullptr) continue;
      const double seconds = side.run();
      if (pass > 0) side.best = std::min(side.best, seconds);
    }
  }
  std::printf("| %-7s | %5s |", std::string(NameOf(shape.type)).c_str(), name.c_str());
  for (const Side& side : sides) {
    if (side.run == nullptr) {
      std::printf("       - |       - |");
    } else {
      std::printf(" %7.1f | %7.1f |", shape.products() / side.best / threads / 1e9,
                  shape.bytes() / side.best / 1e9);
    }
    if (&side == &sides[0]) {
      std::printf(" %3.0f %% | %3.0f %% |", 100 * shape.bytes() / side.best / bandwidth,
                  peak > 0 ? 100 * shape.products() / side.best / threads / peak : 0.0);
    }
  }
  if (sides.size() == 3) {
    const double best = std::min(sides[1].best, sides[2].best);
    if (best < 1e30) {
      std::printf(" %5.2f |", best / sides[0].best);
    } else {
      std::printf("     - |");
    }
  }
  std::printf("\n");
  std::fflush(stdout);
}

int Fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  return 1;
}

int Main() {
  const int threads = absl::GetFlag(FLAGS_threads) > 0 ? absl::GetFlag(FLAGS_threads)
                                                       : compute::UsableCores().count;
  const std::string isa = absl::GetFlag(FLAGS_isa);
  const auto all = compute::CreateCpuBackend({.threads = threads, .isa = isa});
  if (!all.ok()) return Fail(std::string(all.status().message()));
  const auto one = compute::CreateCpuBackend({.threads = 1, .isa = isa});
  if (!one.ok()) return Fail(std::string(one.status().message()));
  const auto bandwidth = MeasureReadBandwidth(threads);
  if (!bandwidth.ok()) return Fail(std::string(bandwidth.status().message()));
  const oracle::LlamaLibrary* llama = oracle::LlamaLibrary::Get();
  if (llama == nullptr) {
    std::printf("without llama.cpp: %s\n", oracle::LlamaLibrary::WhyMissing().c_str());
  }
  std::vector<std::string> types = absl::GetFlag(FLAGS_types);
  if (types.empty()) {
    for (const TensorTypeInfo& info : AllTensorTypes()) {
      if (compute::testing::IsWeightType(info.type)) types.emplace_back(info.name);
    }
  }
  const double peak = compute::MultiplierPeak(isa);
  std::printf("%s; memory read by %d threads: %.1f GB/s; multipliers of a core: %.1f G/s\n\n",
              std::string((*all)->description()).c_str(), threads, *bandwidth / 1e9, peak / 1e9);
  std::printf("| type | rows | strata Gw/s | GB/s | bw | mul |%s\n|---|---|---|---|---|---|%s\n",
              llama == nullptr ? "" : " llama.cpp Gw/s | GB/s | repacked Gw/s | GB/s | ratio |",
              llama == nullptr ? "" : "---|---|---|---|---|");
  for (const std::string& name : types) {
    const TensorTypeInfo* info = FindTensorType(std::string_view(name));
    if (info == nullptr) return Fail("unknown weight type '" + name + "'");
    for (const std::string& rows : absl::GetFlag(FLAGS_rows)) {
      int64_t count = 0;
      if (rows == "cache") {
        RunCase(one->get(), llama, compute::FromCache(info->type), rows, 1, *bandwidth, peak);
      } else if (absl::SimpleAtoi(rows, &count) && count >= 1) {
        RunCase(all->get(), llama, compute::FromMemory(info->type, count), rows, threads,
                *bandwidth, peak);
      } else {
        return Fail("'" + rows + "' is not a number of rows");
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return strata::bench::Main();
}
