// How fast this machine reads memory: the limit that decoding runs into.
#pragma once

#include "absl/status/statusor.h"

namespace strata {

// Bytes per second that `threads` threads together read from buffers far larger than the caches, in
// huge pages where the kernel gives them. The best of several passes over several patterns: which
// of them a processor's prefetchers like most differs, and a ceiling must not be exceeded by the
// kernels that are compared with it. Takes less than a second and about 1 GiB of memory.
// ResourceExhausted or the like when there is no memory for it.
absl::StatusOr<double> MeasureReadBandwidth(int threads);

}  // namespace strata
