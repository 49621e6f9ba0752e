// How many products of bytes a core can form a second, if it did nothing else: the bound of prompt
// reading.
#pragma once

#include <string_view>

namespace strata::compute {

// Products a second of one core with the dot instruction that the kernels of `isa` (kernels.h;
// "auto": what this processor gets) use, in registers, with enough independent sums to hide its
// latency; the best of a few milliseconds. 0 if those kernels have no such instruction or it is not
// known here.
double MultiplierPeak(std::string_view isa);

}  // namespace strata::compute
