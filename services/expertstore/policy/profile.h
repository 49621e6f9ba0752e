// The learned value of every expert, kept across restarts in a small text file:
//
//   strata-expert-profile 1 <fingerprint in hex>
//   <layer> <index> <value>
//   ...
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/shm/protocol.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::expertstore {

struct ProfileEntry {
  uint32_t layer = 0;
  uint32_t index = 0;
  double value = 0;
};

// Replaces the file in one step: a crash leaves the old or the new one. Makes its folder if needed.
absl::Status SaveProfile(const std::string& path, const shm::Fingerprint& model,
                         const std::vector<ProfileEntry>& entries);

// NotFound without a file; InvalidArgument names the line that is wrong; FailedPrecondition if it
// is about another model.
absl::StatusOr<std::vector<ProfileEntry>> LoadProfile(const std::string& path,
                                                      const shm::Fingerprint& model);

}  // namespace strata::expertstore
