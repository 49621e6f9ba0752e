#include "services/expertstore/policy/profile.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace strata::expertstore {
namespace {

std::string Header(const shm::Fingerprint& model) {
  std::string line = "strata-expert-profile 1 ";
  for (const uint8_t byte : model) {
    line += "0123456789abcdef"[byte >> 4];
    line += "0123456789abcdef"[byte & 15];
  }
  return line;
}

absl::Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t wrote = write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return ErrnoStatus(errno, absl::StrCat("cannot write '", path, "'"));
    text.remove_prefix(static_cast<size_t>(wrote));
  }
  if (fsync(fd) != 0) return ErrnoStatus(errno, absl::StrCat("cannot write '", path, "'"));
  return absl::OkStatus();
}

}  // namespace

absl::Status SaveProfile(const std::string& path, const shm::Fingerprint& model,
                         const std::vector<ProfileEntry>& entries) {
  std::string text = Header(model) + "\n";
  for (const ProfileEntry& entry : entries) {
    char line[64];
    std::snprintf(line, sizeof(line), "%u %u %.6g\n", entry.layer, entry.index, entry.value);
    text += line;
  }
  std::error_code ignored;  // what is wrong with the folder, open() says
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const std::string temporary = path + ".new";
  absl::Status status;
  {
    const UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640));
    if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("cannot create '", temporary, "'"));
    status = WriteAll(fd.get(), text, temporary);
  }
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus(errno, absl::StrCat("cannot replace '", path, "'"));
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::StatusOr<std::vector<ProfileEntry>> LoadProfile(const std::string& path,
                                                      const shm::Fingerprint& model) {
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat("no expert profile at '", path, "'"));
  std::string line;
  std::getline(in, line);
  if (line != Header(model)) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", path, "' is not an expert profile of this model"));
  }
  std::vector<ProfileEntry> entries;
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    ProfileEntry entry;
    std::string rest;
    if (!(fields >> entry.layer >> entry.index >> entry.value) || fields >> rest ||
        !std::isfinite(entry.value) || entry.value < 0) {
      return absl::InvalidArgumentError(absl::StrCat("'", path, "' line ", entries.size() + 2,
                                                     ": expected \"layer index value\""));
    }
    entries.push_back(entry);
  }
  return entries;
}

}  // namespace strata::expertstore
