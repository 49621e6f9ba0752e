#include "common/quant/codebooks.h"

namespace strata::quant {

#include "common/quant/codebooks.inc"

}  // namespace strata::quant
