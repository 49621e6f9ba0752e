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
  std::string line = "strata-expert-profile 2 ";
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

std::string FormatProfile(const Profile& profile, const shm::Fingerprint& model) {
  std::string text = absl::StrCat(Header(model), " ", profile.saved_at, "\n");
  for (const ProfileEntry& entry : profile.entries) {
    char line[64];
    std::snprintf(line, sizeof(line), "%u %u %.6g\n", entry.layer, entry.index, entry.value);
    text += line;
  }
  return text;
}

absl::StatusOr<Profile> ParseProfile(std::string_view text, const shm::Fingerprint& model,
                                     const std::string& where) {
  std::istringstream in{std::string(text)};
  std::string line;
  std::getline(in, line);
  Profile profile;
  std::istringstream head(line);
  std::string name;
  std::string version;
  std::string hash;
  head >> name >> version >> hash;
  if (absl::StrCat(name, " ", version, " ", hash) != Header(model)) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, " is not an expert profile of this model"));
  }
  if (!(head >> profile.saved_at)) {
    return absl::InvalidArgumentError(absl::StrCat(where, " line 1: no time of saving"));
  }
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    ProfileEntry entry;
    std::string rest;
    if (!(fields >> entry.layer >> entry.index >> entry.value) || fields >> rest ||
        !std::isfinite(entry.value) || entry.value < 0) {
      return absl::InvalidArgumentError(absl::StrCat(where, " line ", profile.entries.size() + 2,
                                                     ": expected \"layer index value\""));
    }
    profile.entries.push_back(entry);
  }
  return profile;
}

absl::Status SaveProfile(const std::string& path, std::string_view text) {
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

absl::StatusOr<Profile> LoadProfile(const std::string& path, const shm::Fingerprint& model) {
  const std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat("no expert profile at '", path, "'"));
  std::stringstream text;
  text << in.rdbuf();
  return ParseProfile(text.str(), model, absl::StrCat("'", path, "'"));
}

}  // namespace strata::expertstore
