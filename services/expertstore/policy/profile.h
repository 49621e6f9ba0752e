// The learned value of every expert, kept across restarts as text, in kvstore and in a small file:
//
//   strata-expert-profile 2 <fingerprint in hex> <seconds since 1970>
//   <layer> <index> <value>
//   ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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

struct Profile {
  int64_t saved_at = 0;  // seconds since 1970: of two, the newer one counts
  std::vector<ProfileEntry> entries;
};

std::string FormatProfile(const Profile& profile, const shm::Fingerprint& model);
// `where` is named in errors: InvalidArgument says which line is wrong, FailedPrecondition that the
// text is about another model.
absl::StatusOr<Profile> ParseProfile(std::string_view text, const shm::Fingerprint& model,
                                     const std::string& where);

// Replaces the file in one step: a crash leaves the old or the new one. Makes its folder if needed.
absl::Status SaveProfile(const std::string& path, std::string_view text);
// NotFound without a file; else as ParseProfile.
absl::StatusOr<Profile> LoadProfile(const std::string& path, const shm::Fingerprint& model);

}  // namespace strata::expertstore
