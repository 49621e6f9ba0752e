#include "services/expertstore/io/model_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"

namespace strata::expertstore {

absl::StatusOr<ModelFiles> ModelFiles::Open(std::span<const std::string> paths, bool direct) {
  ModelFiles files;
  for (const std::string& path : paths) {
    File file;
    file.path = path;
    file.buffered = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.buffered.valid()) return ErrnoStatus(errno, absl::StrCat("cannot open '", path, "'"));
    struct stat info;
    if (fstat(file.buffered.get(), &info) != 0) {
      return ErrnoStatus(errno, absl::StrCat("cannot stat '", path, "'"));
    }
    file.bytes = static_cast<uint64_t>(info.st_size);
    if (direct) {
      file.direct = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
      if (!file.direct.valid()) {
        LogWarning("'", path, "' cannot be read past the page cache (O_DIRECT): ",
                   ErrnoStatus(errno, "open").message(), "; reading it through the cache");
      }
    }
    files.files_.push_back(std::move(file));
  }
  return files;
}

bool ModelFiles::all_direct(uint32_t files) const {
  for (uint32_t file = 0; file < files; ++file) {
    if (!direct(file)) return false;
  }
  return true;
}

void ModelFiles::DropCache(uint32_t file, uint64_t offset, uint64_t bytes) const {
  // Advice: a refusal costs memory for a while, nothing else.
  posix_fadvise(buffered_fd(file), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                POSIX_FADV_DONTNEED);
}

}  // namespace strata::expertstore
