#include "services/compute/cpu/weight_memory.h"

#include <algorithm>
#include <utility>

#include "common/base/memory_info.h"

namespace strata::compute {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kChunk = size_t{32} << 20;  // so that small weights share huge pages

}  // namespace

const std::byte* WeightMemory::Keep(std::span<const std::byte> bytes,
                                    absl::FunctionRef<void(std::byte* to)> copy) {
  const size_t size = (bytes.size() + kAlign - 1) / kAlign * kAlign;
  if (chunks_.empty() || chunks_.back().size() - used_ < size) {
    const size_t chunk = std::max(size, kChunk);
    if (AvailableMemory() < 2 * chunk) return bytes.data();
    absl::StatusOr<MemoryMap> map = MemoryMap::Anonymous(chunk, /*huge=*/true);
    if (!map.ok()) return bytes.data();
    chunks_.push_back(*std::move(map));
    used_ = 0;
  }
  std::byte* to = chunks_.back().data() + used_;
  copy(to);
  used_ += size;
  return to;
}

}  // namespace strata::compute
