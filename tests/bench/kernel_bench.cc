// Matrix products of every weight type beside llama.cpp's, in the same run: what `strata bench
// kernels` prints, with the peer.
//
// Rows is the number of activation rows: 1 is decoding one stream, 128 a prompt; "cache" is one row
// on one thread with weights in its second-level cache. "Gw/s" counts weights x rows, per core.
// "bw" is our share of the read bandwidth, "mul" of the products that the multipliers can form
// (multiplier_peak.h). The last column divides our better speed by llama.cpp's better
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
ABSL_FLAG(
    bool, interleaved, false,
    "also measure our kernels with eight rows interleaved, as dense weights are after loading "
    "(common/quant/weight_layout.h)");
ABSL_FLAG(int, passes, 5, "passes; the best counts");

namespace strata::bench {
namespace {

using compute::Backend;
using compute::ProductCase;
using compute::ProductShape;

struct Side {
  std::function<double()> run;  // null: there is no such kernel; returns seconds
  double best = 1e30;
};

// Ours in the file's layout and interleaved, then the peer's plain and repacked ones.
constexpr int kOurs = 2;

std::unique_ptr<ProductCase> OurCase(Backend* backend, const ProductShape& shape) {
  auto product = ProductCase::Create(backend, shape);
  if (product.ok()) return *std::move(product);
  std::fprintf(stderr, "%s\n", std::string(product.status().message()).c_str());
  return nullptr;
}

void RunCase(Backend* backend, const oracle::LlamaLibrary* llama, const ProductShape& shape,
             const std::string& name, int threads, double bandwidth, double peak) {
  const auto ours = OurCase(backend, shape);
  std::unique_ptr<ProductCase> interleaved;
  if (absl::GetFlag(FLAGS_interleaved)) {
    ProductShape other = shape;
    other.layout = quant::WeightLayout::kRows8;
    interleaved = OurCase(backend, other);
  }
  if (ours == nullptr) return;
  std::vector<Side> sides(kOurs);
  sides[0].run = [&] { return ours->Run(); };
  if (interleaved != nullptr) sides[1].run = [&] { return interleaved->Run(); };
  std::unique_ptr<GgmlProduct> peers[2];
  for (int repack = 0; repack < 2 && llama != nullptr; ++repack) {
    peers[repack] = GgmlProduct::Create(*llama, shape, ours->weight(), ours->activations(), threads,
                                        repack != 0);
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
  for (size_t i = 0; i < sides.size(); ++i) {
    const bool is_ours = i < kOurs;
    if (i == 1 && interleaved == nullptr) continue;
    const double best = sides[i].best;
    if (sides[i].run == nullptr) {
      std::printf("       - |       - |");
      continue;
    }
    std::printf(" %7.1f | %7.1f |", shape.products() / best / threads / 1e9,
                shape.bytes() / best / 1e9);
    if (is_ours) {
      std::printf(" %3.0f %% | %3.0f %% |", 100 * shape.bytes() / best / bandwidth,
                  peak > 0 ? 100 * shape.products() / best / threads / peak : 0.0);
    }
  }
  if (llama != nullptr) {
    const double peer = std::min(sides[kOurs].best, sides[kOurs + 1].best);
    if (peer < 1e30) {
      std::printf(" %5.2f |", peer / std::min(sides[0].best, sides[1].best));
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
  const bool interleaved = absl::GetFlag(FLAGS_interleaved);
  std::printf(
      "| type | rows | strata Gw/s | GB/s | bw | mul |%s%s\n|---|---|---|---|---|---|%s%s\n",
      interleaved ? " interleaved Gw/s | GB/s | bw | mul |" : "",
      llama == nullptr ? "" : " llama.cpp Gw/s | GB/s | repacked Gw/s | GB/s | ratio |",
      interleaved ? "---|---|---|---|" : "", llama == nullptr ? "" : "---|---|---|---|---|");
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
