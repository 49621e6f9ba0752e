// Keeps the learned expert profile in a file: loaded at start, saved now and then, at a clean stop
// and on request, so that a store killed at any moment refills with what was hot minutes before.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "services/expertstore/plane/data_plane.h"

#include "absl/status/statusor.h"

namespace strata::expertstore {

class ProfileKeeper {
 public:
  // The values of the file at `path` by expert number, for DataPlaneOptions::profile. Empty, with a
  // line in the log, if there is none to use.
  static std::vector<double> Load(const std::string& path, const gguf::ExpertGeometry& geometry,
                                  const shm::Fingerprint& model);

  // `plane` must be running and outlive the keeper.
  ProfileKeeper(DataPlane& plane, std::string path);
  ~ProfileKeeper();
  ProfileKeeper(const ProfileKeeper&) = delete;
  ProfileKeeper& operator=(const ProfileKeeper&) = delete;

  // Number of experts saved. Thread-safe.
  absl::StatusOr<uint64_t> Save();

 private:
  void SaveNowAndThen();

  DataPlane& plane_;
  const std::string path_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  std::mutex file_mutex_;  // one writer of the file at a time
  std::thread thread_;
};

}  // namespace strata::expertstore
