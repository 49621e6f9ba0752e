#include "services/compute/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "common/base/checked.h"
#include "common/base/memory_map.h"
#include "common/base/status.h"
#include "common/quant/weight_layout.h"
#include "services/compute/cpu/cpu_backend_impl.h"
#include "services/compute/cpu/topology.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace strata::compute {
namespace {

class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(MemoryMap map) : map_(std::move(map)) {}
  std::byte* data() override { return map_.data(); }
  size_t size() const override { return map_.size(); }

 private:
  MemoryMap map_;
};

absl::StatusOr<const Kernels*> FindKernels(const std::string& isa) {
  std::string names;
  for (const KernelChoice& choice : KernelChoices()) {
    absl::StrAppend(&names, ", ", A(choice.name));
    if (isa != "auto" && isa != choice.name) continue;
    if (choice.available()) return &choice.kernels();
    if (isa == choice.name) {
      return absl::FailedPreconditionError(
          absl::StrCat("this processor lacks the instruction set '", isa, "'; use 'auto'"));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("instruction set '", isa, "' is not one of: auto", names));
}

constexpr int kMostThreads = 1024;

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuOptions& options) {
  STRATA_ASSIGN_OR_RETURN(const Kernels* kernels, FindKernels(options.isa));
  if (options.threads < 0 || options.threads > kMostThreads) {
    return absl::InvalidArgumentError(absl::StrCat("threads = ", options.threads, " is not in 0..",
                                                   kMostThreads, " (0 = one for each core)"));
  }
  if (options.spin_us < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("spin_us = ", options.spin_us, " must not be negative"));
  }
  const Cores cores = UsableCores();
  const int threads = options.threads > 0 ? options.threads : cores.count;
  return std::make_unique<CpuBackend>(*kernels, threads, options.spin_us, &cores.mask);
}

CpuBackend::CpuBackend(const Kernels& kernels, int threads, int spin_us, const cpu_set_t* mask)
    : kernels_(kernels),
      pool_(threads, spin_us, mask),
      description_(absl::StrCat("cpu ", A(kernels.name), ", ", threads,
                                threads == 1 ? " thread" : " threads")) {}

absl::StatusOr<std::unique_ptr<Buffer>> CpuBackend::Allocate(size_t bytes, std::string_view what) {
  // At least one page, so that data() is an address.
  absl::StatusOr<MemoryMap> map = MemoryMap::Anonymous(std::max<size_t>(bytes, 1), /*huge=*/true);
  if (!map.ok()) {
    return Annotate(map.status(), absl::StrCat("cannot allocate ", bytes, " bytes for ", A(what)));
  }
  return std::make_unique<HostBuffer>(*std::move(map));
}

absl::StatusOr<Tensor> CpuBackend::LoadWeight(std::span<const std::byte> bytes, TensorType type,
                                              int64_t rows, int64_t cols) {
  if (rows <= 0 || cols <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a weight of ", rows, " x ", cols, " values has no rows or no columns"));
  }
  const std::optional<uint64_t> row_bytes = RowBytes(type, cols);
  if (!row_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a row of ", cols, " values is not a whole number of ", A(NameOf(type)),
                     " blocks of ", InfoOf(type).block_values));
  }
  const std::optional<uint64_t> total = CheckedMul(*row_bytes, rows);
  if (!total || *total != bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a weight of ", rows, " x ", cols, " ",
                                                   A(NameOf(type)), " values does not have ",
                                                   bytes.size(), " bytes"));
  }
  const bool interleave =
      rows % quant::kInterleavedRows == 0 && kernels_.rows8[static_cast<size_t>(type)] != nullptr;
  const std::byte* kept = weights_.Keep(bytes, [&](std::byte* to) {
    if (interleave) {
      quant::InterleaveRows(type, rows, *row_bytes, bytes.data(), to);
    } else {
      std::memcpy(to, bytes.data(), bytes.size());
    }
  });
  // Weights are only read; Tensor has one pointer for both directions.
  Tensor weight{type, rows, cols, *row_bytes, const_cast<std::byte*>(kept)};
  if (interleave && kept != bytes.data()) weight.layout = quant::WeightLayout::kRows8;
  return weight;
}

void CpuBackend::CopyToDevice(std::byte* device, std::span<const std::byte> host) {
  if (!host.empty()) std::memcpy(device, host.data(), host.size());
}

void CpuBackend::CopyToHost(std::span<std::byte> host, const std::byte* device) {
  if (!host.empty()) std::memcpy(host.data(), device, host.size());
}

void CpuBackend::ForRows(int64_t rows, int64_t row_cost,
                         absl::FunctionRef<void(int64_t begin, int64_t end, int worker)> fn) {
  constexpr int64_t kWorthWaking = 32768;  // elements
  if (rows <= 0) return;
  const int64_t per_tile = std::max<int64_t>(1, kWorthWaking / 4 / std::max<int64_t>(1, row_cost));
  if (rows * row_cost < kWorthWaking) {
    fn(0, rows, 0);
    return;
  }
  pool_.ParallelFor((rows + per_tile - 1) / per_tile, [&](int64_t tile, int worker) {
    fn(tile * per_tile, std::min(rows, (tile + 1) * per_tile), worker);
  });
}

CpuBackend::PerWorker CpuBackend::TakePerWorker(size_t bytes) {
  const size_t stride = (bytes + 63) / 64 * 64;
  return {scratch_.Take(stride * pool_.threads()), stride};
}

}  // namespace strata::compute
