// Keeps the learned expert profile in kvstore and in a file: loaded at start, saved now and then,
// at a clean stop and on request, so that a store killed at any moment refills with what was hot
// minutes before. The file serves when kvstore is away or keeps nothing.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "common/base/periodic_thread.h"
#include "services/expertstore/plane/data_plane.h"
#include "services/expertstore/policy/profile.h"

#include "absl/status/statusor.h"

namespace strata::expertstore {

// The profile's text in another process. Thread-safe.
class RemoteProfile {
 public:
  virtual ~RemoteProfile() = default;
  // NotFound if there is none yet.
  virtual absl::StatusOr<std::string> Get(std::chrono::milliseconds timeout) = 0;
  virtual absl::Status Put(const std::string& text, std::chrono::milliseconds timeout) = 0;
};

class ProfileKeeper {
 public:
  // The newer of the profiles in the file at `path` and in `remote` (may be null), by expert
  // number, for DataPlaneOptions::profile. Empty, with a line in the log, if there is none to use.
  // Waits for `remote` a moment: the daemons of a machine start together.
  static std::vector<double> Load(const std::string& path, RemoteProfile* remote,
                                  const gguf::ExpertGeometry& geometry,
                                  const shm::Fingerprint& model);

  // `plane` must be running and, like `remote` (may be null), outlive the keeper.
  ProfileKeeper(DataPlane& plane, std::string path, RemoteProfile* remote);
  ~ProfileKeeper();
  ProfileKeeper(const ProfileKeeper&) = delete;
  ProfileKeeper& operator=(const ProfileKeeper&) = delete;

  // Number of experts saved; an error if neither place took it. Thread-safe.
  absl::StatusOr<uint64_t> Save();

 private:
  void SaveOrWarn();

  DataPlane& plane_;
  const std::string path_;
  RemoteProfile* const remote_;
  std::mutex file_mutex_;  // one writer of the file at a time
  PeriodicThread thread_;
};

}  // namespace strata::expertstore
