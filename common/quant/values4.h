// The values that the codes of the non-linear four-bit types stand for.
#pragma once

#include <cstdint>

namespace strata::quant {

// E2M1 (MXFP4, NVFP4), doubled so that they are integers; pair with half of the scale. Code 8 is
// minus zero, which as an integer is zero.
inline constexpr int8_t kE2m1Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

// IQ4_NL and IQ4_XS.
inline constexpr int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace strata::quant
