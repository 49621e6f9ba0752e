#include "common/base/read_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "common/base/memory_map.h"
#include "common/base/status.h"

namespace strata {
namespace {

constexpr size_t kTotalBytes = size_t{1} << 30;
constexpr size_t kMostBytesPerThread = size_t{256} << 20;
constexpr size_t kLeastBytesPerThread = size_t{64} << 20;
constexpr int kPasses = 6;
constexpr size_t kLine = 64;
constexpr size_t kStride = 4 * kLine;  // read of one stream before the next has its turn

// Wide loads leave room in the processor's window for more lines in flight than sums of words do.
using Wide16 = uint64_t __attribute__((vector_size(16)));
using Wide32 = uint64_t __attribute__((vector_size(32)));

// Reads everything, as kStreams streams side by side that each ask kAhead bytes in advance (0:
// leave it to the processor). Returns a value that depends on all of it.
template <typename Wide, size_t kStreams, size_t kAhead>
__attribute__((always_inline)) inline uint64_t ReadAll(const std::byte* memory, size_t bytes) {
  constexpr size_t kLoads = kStride / sizeof(Wide);
  Wide sums[kLoads] = {};
  const size_t stream_bytes = bytes / kStreams;
  for (size_t at = 0; at < stream_bytes; at += kStride) {
    for (size_t s = 0; s < kStreams; ++s) {
      const std::byte* p = memory + s * stream_bytes + at;
      if constexpr (kAhead > 0) {
        for (size_t line = 0; line < kStride; line += kLine) __builtin_prefetch(p + line + kAhead);
      }
#pragma GCC unroll 16
      for (size_t i = 0; i < kLoads; ++i) {
        Wide value;
        std::memcpy(&value, p + i * sizeof(Wide), sizeof(value));
        sums[i] ^= value;
      }
    }
  }
  uint64_t result = 0;
  for (const Wide& sum : sums) {
    for (size_t i = 0; i < sizeof(Wide) / sizeof(uint64_t); ++i) result ^= sum[i];
  }
  return result;
}

using ReadFn = uint64_t (*)(const std::byte* memory, size_t bytes);

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t ReadOneStreamAvx2(const std::byte* memory, size_t bytes) {
  return ReadAll<Wide32, 1, 0>(memory, bytes);
}
__attribute__((target("avx2"))) uint64_t ReadFourStreamsAvx2(const std::byte* memory,
                                                             size_t bytes) {
  return ReadAll<Wide32, 4, 1024>(memory, bytes);
}
#endif
uint64_t ReadOneStream(const std::byte* memory, size_t bytes) {
  return ReadAll<Wide16, 1, 0>(memory, bytes);
}
uint64_t ReadFourStreams(const std::byte* memory, size_t bytes) {
  return ReadAll<Wide16, 4, 1024>(memory, bytes);
}

std::vector<ReadFn> Patterns() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return {&ReadOneStreamAvx2, &ReadFourStreamsAvx2};
#endif
  return {&ReadOneStream, &ReadFourStreams};
}

}  // namespace

absl::StatusOr<double> MeasureReadBandwidth(int threads) {
  const size_t bytes = std::clamp(kTotalBytes / static_cast<size_t>(threads), kLeastBytesPerThread,
                                  kMostBytesPerThread);
  std::vector<MemoryMap> buffers;
  for (int t = 0; t < threads; ++t) {
    // Prefetching past the end is harmless: it is a hint about an address, not an access.
    STRATA_ASSIGN_OR_RETURN(MemoryMap map, MemoryMap::Anonymous(bytes, /*huge=*/true));
    // Memory that was never written is one page of zeros, which lies in the cache.
    std::memset(map.data(), 1, bytes);
    buffers.push_back(std::move(map));
  }
  std::atomic<uint64_t> sink{0};  // makes the reads observable
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    for (const ReadFn read : Patterns()) {
      const auto start = std::chrono::steady_clock::now();
      std::vector<std::thread> workers;
      workers.reserve(buffers.size());
      for (const MemoryMap& buffer : buffers) {
        workers.emplace_back(
            [&sink, &buffer, read] { sink += read(buffer.data(), buffer.size()); });
      }
      for (std::thread& worker : workers) worker.join();
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      best = std::max(best, static_cast<double>(bytes) * threads / elapsed.count());
    }
  }
  return best;
}

}  // namespace strata
