// Matrix products of every weight type: weights a second and bytes a second, beside llama.cpp.
//
// Rows is the number of activation rows: 1 is decoding one stream, 128 a prompt. One row reads more
// weights than any cache holds; many rows are bound by arithmetic, so a smaller set does. "Gw/s"
// counts weight x row products. The last column divides ours by llama.cpp's better figure.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "services/compute/cpu/cpu_backend.h"
#include "services/compute/cpu/test_tensors.h"
#include "services/compute/cpu/topology.h"
#include "tests/bench/ggml_product.h"

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"

ABSL_FLAG(int, threads, 0, "threads of both sides; 0 = physical cores");
ABSL_FLAG(std::string, isa, "auto", "instruction set of our kernels");
ABSL_FLAG(std::vector<std::string>, types,
          (std::vector<std::string>{"q4_K", "q6_K", "q8_0", "q5_K", "q4_0", "q2_K", "q3_K",
                                    "iq4_xs", "iq4_nl", "mxfp4", "f16", "bf16", "f32"}),
          "weight types");
ABSL_FLAG(std::vector<std::string>, rows, (std::vector<std::string>{"1", "4", "32", "128"}),
          "numbers of activation rows");
ABSL_FLAG(int, inputs, 2048, "columns of a weight matrix");
ABSL_FLAG(int, outputs, 2048, "rows of a weight matrix");
ABSL_FLAG(int, megabytes, 192, "weights read in a pass of one row");
ABSL_FLAG(int, passes, 5, "passes; the best counts");

namespace strata::bench {
namespace {

using compute::Backend;
using compute::Tensor;
using compute::testing::MakeTensor;
using compute::testing::Owned;

double Seconds(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Bytes a second that `threads` threads read from memory.
double ReadBandwidth(int threads) {
  constexpr size_t kWords = size_t{32} << 20;
  const std::vector<uint64_t> memory(kWords, 1);
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    std::vector<uint64_t> sums(threads * 8);
    const double seconds = Seconds([&] {
      std::vector<std::thread> workers;
      workers.reserve(threads);
      for (int t = 0; t < threads; ++t) {
        workers.emplace_back([&, t] {
          uint64_t sum[8] = {};
          for (size_t i = kWords / threads * t; i + 8 <= kWords / threads * (t + 1); i += 8) {
            for (int j = 0; j < 8; ++j) sum[j] += memory[i + j];
          }
          for (int j = 0; j < 8; ++j) sums[t * 8 + j] = sum[j];
        });
      }
      for (std::thread& worker : workers) worker.join();
    });
    best = std::max(best, kWords * sizeof(uint64_t) / seconds);
  }
  return best;
}

void RunCase(Backend* backend, const oracle::LlamaLibrary* llama, TensorType type, int64_t rows,
             int threads) {
  GgmlProduct::Shape shape;
  shape.type = type;
  shape.inputs = absl::GetFlag(FLAGS_inputs);
  shape.outputs = absl::GetFlag(FLAGS_outputs);
  shape.rows = rows;
  const Owned weight =
      compute::testing::RandomWeights(type, shape.outputs, shape.inputs, /*seed=*/1);
  const double bytes = static_cast<double>(weight.memory.size());
  const double wanted = absl::GetFlag(FLAGS_megabytes) * 1e6;
  shape.copies = static_cast<int>(std::clamp(wanted / bytes, 1.0, 1000.0));
  // In one piece of huge pages, as an engine holds its weights.
  const auto memory = backend->Allocate(weight.memory.size() * shape.copies, "weights");
  if (!memory.ok()) return;
  std::vector<Tensor> weights(shape.copies, weight.tensor);
  for (int i = 0; i < shape.copies; ++i) {
    weights[i].data = (*memory)->data() + i * weight.memory.size();
    std::copy(weight.memory.begin(), weight.memory.end(), weights[i].data);
  }
  const Owned x = compute::testing::RandomFloats(rows, shape.inputs, 2);
  const Owned y = MakeTensor(TensorType::kF32, rows, shape.outputs);

  struct Side {
    std::function<void()> run;
    double best = 1e30;
  };
  std::vector<Side> sides;
  sides.push_back({[&] {
    for (const Tensor& w : weights) {
      backend->MatMul(x.tensor, {&w, 1}, {}, {&y.tensor, 1}, false);
    }
  }});
  std::unique_ptr<GgmlProduct> peers[2];
  for (int repack = 0; repack < 2 && llama != nullptr; ++repack) {
    peers[repack] =
        GgmlProduct::Create(*llama, shape, weight.memory,
                            {x.Row(0), static_cast<size_t>(rows * shape.inputs)}, threads, repack);
    GgmlProduct* peer = peers[repack].get();
    sides.push_back({peer != nullptr ? std::function<void()>([peer] { peer->Run(); }) : nullptr});
  }
  for (int pass = 0; pass < absl::GetFlag(FLAGS_passes) + 1; ++pass) {
    for (Side& side : sides) {
      if (side.run == nullptr) continue;
      const double seconds = Seconds(side.run);
      if (pass > 0) side.best = std::min(side.best, seconds);
    }
  }
  const double products =
      static_cast<double>(shape.inputs) * shape.outputs * rows * shape.copies / 1e9;
  std::printf("%-8s %5ld", std::string(NameOf(type)).c_str(), static_cast<long>(rows));
  for (const Side& side : sides) {
    if (side.run == nullptr) {
      std::printf(" |       -       -");
    } else {
      std::printf(" | %7.1f %7.1f", products / side.best, bytes * shape.copies / side.best / 1e9);
    }
  }
  if (sides.size() == 3) {
    std::printf(" | %5.2f", std::min(sides[1].best, sides[2].best) / sides[0].best);
  }
  std::printf("\n");
  std::fflush(stdout);
}

int Main() {
  const int threads = absl::GetFlag(FLAGS_threads) > 0 ? absl::GetFlag(FLAGS_threads)
                                                       : compute::UsableCores().count;
  auto backend = compute::CreateCpuBackend({.threads = threads, .isa = absl::GetFlag(FLAGS_isa)});
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", std::string(backend.status().message()).c_str());
    return 1;
  }
  const oracle::LlamaLibrary* llama = oracle::LlamaLibrary::Get();
  if (llama == nullptr) {
    std::printf("without llama.cpp: %s\n", oracle::LlamaLibrary::WhyMissing().c_str());
  }
  std::printf("%s; memory read by %d threads: %.1f GB/s\n",
              std::string((*backend)->description()).c_str(), threads,
              ReadBandwidth(threads) / 1e9);
  std::printf("               |      strata     |    llama.cpp    | llama.cpp repack|\n");
  std::printf("%-8s %5s | %7s %7s | %7s %7s | %7s %7s | ratio\n", "type", "rows", "Gw/s", "GB/s",
              "Gw/s", "GB/s", "Gw/s", "GB/s");
  for (const std::string& name : absl::GetFlag(FLAGS_types)) {
    const TensorTypeInfo* info = FindTensorType(std::string_view(name));
    if (info == nullptr) {
      std::fprintf(stderr, "unknown weight type '%s'\n", name.c_str());
      return 1;
    }
    for (const std::string& rows : absl::GetFlag(FLAGS_rows)) {
      int64_t count = 0;
      if (!absl::SimpleAtoi(rows, &count) || count < 1) {
        std::fprintf(stderr, "'%s' is not a number of rows\n", rows.c_str());
        return 1;
      }
      RunCase(backend->get(), llama, info->type, count, threads);
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
