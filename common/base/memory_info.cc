#include "common/base/memory_info.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"

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

// The path of this process's group (version 2); empty if there is none.
std::string OwnGroup(const std::string& root) {
  const std::string groups = ReadAll(root + "/proc/self/cgroup");
  const std::string_view own = FieldOf(groups, "0::");
  return own.starts_with('/') ? std::string(own) : "";
}

// What the group `path` ("/a/b") and its ancestors leave.
uint64_t GroupHeadroom(const std::string& root, std::string path) {
  uint64_t headroom = std::numeric_limits<uint64_t>::max();
  for (;;) {
    const std::string folder = absl::StrCat(root, "/sys/fs/cgroup", path, "/");
    const auto limit = ParseNumber(ReadAll(folder + "memory.max"));  // "max" is no number
    const auto used = ParseNumber(ReadAll(folder + "memory.current"));
    if (limit && used) {
      const std::string stat = ReadAll(folder + "memory.stat");
      const uint64_t cache = ParseNumber(FieldOf(stat, "inactive_file ")).value_or(0) +
                             ParseNumber(FieldOf(stat, "active_file ")).value_or(0);
      const uint64_t hard_used = *used - std::min(*used, cache);
      headroom = std::min(headroom, *limit - std::min(*limit, hard_used));
    }
    if (path.empty() || path == "/") return headroom;
    path.resize(path.rfind('/'));
  }
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
  if (const std::string own = OwnGroup(root); !own.empty()) {
    free = std::min(free, GroupHeadroom(root, own));
  }
  return free;
}

uint64_t TotalMemory(const std::string& root) {
  uint64_t total = MemInfoField(ReadAll(root + "/proc/meminfo"), "MemTotal").value_or(0);
  for (std::string path = OwnGroup(root); !path.empty(); path.resize(path.rfind('/'))) {
    const std::string folder = absl::StrCat(root, "/sys/fs/cgroup", path == "/" ? "" : path, "/");
    if (const auto limit = ParseNumber(ReadAll(folder + "memory.max"))) {
      total = std::min(total, *limit);
    }
  }
  return total;
}

}  // namespace strata
