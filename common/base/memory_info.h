// How much memory this process may still take.
#pragma once

#include <cstdint>

namespace strata {

// MemAvailable of the system, lowered to what the control group (v1 or v2) still allows. 0 if the
// system does not say.
uint64_t AvailableMemory();

// Physical memory, lowered to the limit of the control group.
uint64_t TotalMemory();

}  // namespace strata
