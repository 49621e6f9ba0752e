// Bounds of one rendering. A chat template comes out of a model file and is untrusted code:
// whatever it does, rendering ends within these.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata::gateway {

struct RenderLimits {
  uint64_t max_work = 2'000'000;  // about one per evaluated node or 256 bytes touched
  size_t max_output_bytes = size_t{64} << 20;
  size_t max_live_bytes = size_t{256} << 20;  // strings and containers alive at one time
  size_t max_depth = 400;                     // nested expressions, statements and macro calls
  int64_t max_range = 100'000;                // elements of one range(), as in Jinja's sandbox
  int64_t max_milliseconds = 5'000;           // wall clock, the last line of defence
};

}  // namespace strata::gateway
