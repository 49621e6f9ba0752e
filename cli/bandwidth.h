// How fast this machine reads memory: the limit that decoding runs into.
#pragma once

namespace strata::cli {

// Bytes per second that `threads` threads together read from a buffer far larger than the caches;
// the best of several passes.
double MeasureReadBandwidth(int threads);

}  // namespace strata::cli
