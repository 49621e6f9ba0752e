// How fast a drive delivers a file: the limit that experts outside memory run into.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace strata {

// Bytes per second of reads of 1 MiB at places all over the file, several at a time, past the page
// cache where the file system allows it. Reads at most 256 MiB. The error names the file.
absl::StatusOr<double> MeasureDriveRate(const std::string& path);

}  // namespace strata
