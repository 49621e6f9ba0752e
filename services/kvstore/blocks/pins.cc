#include "services/kvstore/blocks/pins.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "common/base/unique_fd.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace strata::kvstore {
namespace {

constexpr std::string_view kMagic = "strata pins 1\n";
constexpr size_t kIdBytes = sizeof(state::BlockId::bytes);

}  // namespace

// Magic, the ids, XXH3-64 of all before (little endian).
std::vector<state::BlockId> ReadPins(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!bytes.starts_with(kMagic) || bytes.size() < kMagic.size() + sizeof(uint64_t)) return {};
  const std::string_view body = std::string_view(bytes).substr(0, bytes.size() - sizeof(uint64_t));
  uint64_t checksum = 0;
  std::memcpy(&checksum, bytes.data() + body.size(), sizeof(checksum));
  if (checksum != XXH3_64bits(body.data(), body.size())) return {};
  std::vector<state::BlockId> ids;
  for (size_t at = kMagic.size(); at + kIdBytes <= body.size(); at += kIdBytes) {
    ids.push_back(*state::BlockIdFromRaw(body.substr(at, kIdBytes)));
  }
  return ids;
}

absl::Status WritePins(const std::string& path, std::span<const state::BlockId> ids) {
  std::string bytes(kMagic);
  for (const state::BlockId& id : ids) bytes += id.ToString();
  const uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size());
  bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  const std::string next = path + ".new";
  const UniqueFd file(open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640));
  if (!file.valid() ||
      write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()) ||
      fsync(file.get()) != 0 || std::rename(next.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write '", path, "'"));
  }
  return absl::OkStatus();
}

}  // namespace strata::kvstore
