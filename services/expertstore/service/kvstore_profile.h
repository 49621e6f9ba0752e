// The expert profile in kvstore (PutProfile, GetProfile).
#pragma once

#include <memory>
#include <string>

#include "services/expertstore/service/profile_keeper.h"
#include "strata/v1/config.pb.h"
#include "strata/v1/model.pb.h"

#include "absl/status/statusor.h"

namespace strata::expertstore {

// `address` of kvstore. Does not connect yet: kvstore may start later, or die and come back.
absl::StatusOr<std::unique_ptr<RemoteProfile>> ProfileInKvStore(
    const std::string& address, const v1::TlsConfig& tls, const v1::ModelFingerprint& fingerprint);

}  // namespace strata::expertstore
