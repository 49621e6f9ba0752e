// The model's files, open for reading past the page cache (O_DIRECT) and through it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"

#include "absl/status/statusor.h"

namespace strata::expertstore {

class ModelFiles {
 public:
  // `direct`: try O_DIRECT; a file whose file system refuses it is read through the page cache.
  static absl::StatusOr<ModelFiles> Open(std::span<const std::string> paths, bool direct);

  uint32_t size() const { return static_cast<uint32_t>(files_.size()); }
  const std::string& path(uint32_t file) const { return files_[file].path; }
  uint64_t bytes(uint32_t file) const { return files_[file].bytes; }
  int buffered_fd(uint32_t file) const { return files_[file].buffered.get(); }
  int direct_fd(uint32_t file) const { return files_[file].direct.get(); }
  bool direct(uint32_t file) const {
    return files_[file].direct.valid() && files_[file].use_direct;
  }
  // Some file systems accept the open and refuse the first read.
  void StopDirect(uint32_t file) { files_[file].use_direct = false; }
  // Whether the first `files` files are read past the page cache.
  bool all_direct(uint32_t files) const;
  // After a read through the page cache: the arena holds the bytes now, the cache need not.
  void DropCache(uint32_t file, uint64_t offset, uint64_t bytes) const;

 private:
  struct File {
    std::string path;
    uint64_t bytes = 0;
    UniqueFd buffered;
    UniqueFd direct;
    bool use_direct = true;
  };
  std::vector<File> files_;
};

}  // namespace strata::expertstore
