// What every benchmark's main() does: reads the flags, runs, says what went wrong.
#pragma once

#include <iostream>

#include "absl/flags/parse.h"
#include "absl/status/status.h"

namespace strata::bench {

inline int RunMain(int argc, char** argv, absl::Status (*run)()) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = run();
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace strata::bench
