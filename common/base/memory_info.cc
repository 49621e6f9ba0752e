#include "common/base/memory_info.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>

#include "common/base/status.h"

namespace strata {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// What follows `key` in the line of `text` that begins with it; empty without such a line.
std::string_view FieldOf(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(key)) {
      const std::string_view value = line.substr(key.size());
      return value.substr(std::min(value.size(), value.find_first_not_of(' ')));
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return {};
}

// The files of one version of control groups.
struct GroupVersion {
  std::string_view line;   // what the own group's line in /proc/self/cgroup has before the path
  std::string_view mount;  // where the groups are
  std::string_view limit, used;
  std::string_view inactive, active;  // page cache, in memory.stat, that can be dropped
};
constexpr GroupVersion kVersions[] = {
    {"0::", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ", "active_file "},
    // Version 1, where `memory` is a hierarchy of its own; its root has a limit beyond all memory.
    {":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file ", "total_active_file "},
};

// The path of this process's group; empty if there is none of this version.
std::string OwnGroup(const std::string& root, const GroupVersion& version) {
  const std::string groups = ReadAll(root + "/proc/self/cgroup");
  for (std::string_view text = groups; !text.empty();) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const size_t at = line.find(version.line);
    // "0::/path" begins with it, "4:memory:/path" has a number before it.
    if (at != std::string_view::npos && (at == 0) == (version.line[0] != ':')) {
      const std::string_view own = line.substr(at + version.line.size());
      if (own.starts_with('/')) return std::string(own);
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return "";
}

// Calls f(folder) for the own group and its ancestors up to the mount's root: in a container only
// the root may be visible, and it is the container's own group.
template <typename F>
void ForOwnGroups(const std::string& root, const GroupVersion& version, const F& f) {
  std::string path = OwnGroup(root, version);
  if (path.empty()) return;
  for (;;) {
    f(absl::StrCat(root, A(version.mount), path == "/" ? "" : path, "/"));
    if (path.empty() || path == "/") return;
    path.resize(path.rfind('/'));
  }
}

std::optional<uint64_t> NumberIn(const std::string& folder, std::string_view file) {
  return ParseNumber(ReadAll(folder + std::string(file)));  // "max" is no number
}

// What the own group and its ancestors leave.
uint64_t GroupHeadroom(const std::string& root, const GroupVersion& version) {
  uint64_t headroom = std::numeric_limits<uint64_t>::max();
  ForOwnGroups(root, version, [&](const std::string& folder) {
    const auto limit = NumberIn(folder, version.limit);
    const auto used = NumberIn(folder, version.used);
    if (!limit || !used) return;
    const std::string stat = ReadAll(folder + "memory.stat");
    const uint64_t cache = ParseNumber(FieldOf(stat, version.inactive)).value_or(0) +
                           ParseNumber(FieldOf(stat, version.active)).value_or(0);
    const uint64_t hard_used = *used - std::min(*used, cache);
    headroom = std::min(headroom, *limit - std::min(*limit, hard_used));
  });
  return headroom;
}

}  // namespace

std::optional<uint64_t> MemInfoField(std::string_view text, std::string_view name) {
  const std::string_view field = FieldOf(text, std::string(name) + ":");
  const auto value = ParseNumber(field);
  if (!value) return std::nullopt;
  return field.ends_with("kB") ? *value * 1024 : *value;
}

uint64_t AvailableMemory(const std::string& root) {
  uint64_t free = MemInfoField(ReadAll(root + "/proc/meminfo"), "MemAvailable").value_or(0);
  for (const GroupVersion& version : kVersions) {
    free = std::min(free, GroupHeadroom(root, version));
  }
  return free;
}

uint64_t TotalMemory(const std::string& root) {
  uint64_t total = MemInfoField(ReadAll(root + "/proc/meminfo"), "MemTotal").value_or(0);
  for (const GroupVersion& version : kVersions) {
    ForOwnGroups(root, version, [&](const std::string& folder) {
      if (const auto limit = NumberIn(folder, version.limit)) total = std::min(total, *limit);
    });
  }
  return total;
}

}  // namespace strata
