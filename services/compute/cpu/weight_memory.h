// Dense weights in huge pages.
//
// A mapped file lies in pages of 4 KiB: streaming it costs a walk of the page table every 4 KiB,
// and the processor's prefetching stops at each of them. Weights that every token reads are worth a
// copy. Weights of experts are not copied: they lie in the arena of expertstore, which has huge
// pages itself.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/base/memory_map.h"

namespace strata::compute {

class WeightMemory {
 public:
  // A copy that lives as long as this object, aligned to 64 bytes; or `bytes` themselves if less
  // than twice their size of memory is free, or none can be had.
  std::span<const std::byte> Keep(std::span<const std::byte> bytes);

 private:
  std::vector<MemoryMap> chunks_;
  size_t used_ = 0;  // of the last chunk
};

}  // namespace strata::compute
