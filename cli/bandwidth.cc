#include "cli/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace strata::cli {
namespace {

constexpr size_t kBytesPerThread = size_t{256} << 20;
constexpr int kPasses = 5;

// Eight independent sums keep enough loads in flight to be limited by memory, not by addition.
uint64_t Sum(const std::vector<uint64_t>& data) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= data.size(); i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += data[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t s : sums) total += s;
  return total;
}

}  // namespace

double MeasureReadBandwidth(int threads) {
  std::vector<std::vector<uint64_t>> buffers(
      static_cast<size_t>(threads), std::vector<uint64_t>(kBytesPerThread / sizeof(uint64_t), 1));
  std::atomic<uint64_t> sink{0};  // makes the reads observable
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> workers;
    workers.reserve(buffers.size());
    for (const auto& buffer : buffers) workers.emplace_back([&] { sink += Sum(buffer); });
    for (std::thread& worker : workers) worker.join();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(kBytesPerThread) * threads / elapsed.count());
  }
  return best;
}

}  // namespace strata::cli
