// Dense weights in huge pages.
//
// A mapped file lies in pages of 4 KiB: streaming it costs a walk of the page table every 4 KiB,
// and the processor's prefetching stops at each of them. Weights that every token reads are worth a
// copy, which may have another layout. Weights of experts are not copied: they lie in the arena of
// expertstore, which has huge pages itself.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/base/memory_map.h"

#include "absl/functional/function_ref.h"

namespace strata::compute {

class WeightMemory {
 public:
  // A copy of as many bytes, which copy(to) writes, aligned to 64 bytes and alive as long as this
  // object; or `bytes` themselves if less than twice their size of memory is free, or none can be
  // had.
  const std::byte* Keep(std::span<const std::byte> bytes,
                        absl::FunctionRef<void(std::byte* to)> copy);

 private:
  std::vector<MemoryMap> chunks_;
  size_t used_ = 0;  // of the last chunk
};

}  // namespace strata::compute
