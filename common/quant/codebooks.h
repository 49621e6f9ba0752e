// The codebooks of the i-quants: index -> 8 (uint64_t) or 4 (uint32_t) small integers, one a byte,
// lowest byte first. Those of IQ1 are signed (-1, 0, 1), all others magnitudes. Constants of the
// format; codebooks.inc says where they come from.
#pragma once

#include <cstdint>

namespace strata::quant {

extern const uint64_t kIq1SGrid[2048];  // IQ1_S and IQ1_M
extern const uint64_t kIq2XxsGrid[256];
extern const uint64_t kIq2XsGrid[512];
extern const uint64_t kIq2SGrid[1024];
extern const uint32_t kIq3XxsGrid[256];
extern const uint32_t kIq3SGrid[512];

}  // namespace strata::quant
