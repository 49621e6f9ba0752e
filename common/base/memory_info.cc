#include "common/base/memory_info.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

#include "common/base/status.h"

namespace strata {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t value;
  if (!(file >> value)) return std::nullopt;  // also for "max"
  return value;
}

// A line "Name:   123 kB" of /proc/meminfo.
uint64_t MemInfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(name + ":")) continue;
    std::istringstream fields(line.substr(name.size() + 1));
    uint64_t kib = 0;
    fields >> kib;
    return kib * 1024;
  }
  return 0;
}

struct GroupMemory {
  uint64_t limit = kUnlimited;
  uint64_t used = 0;
};

// The tightest limit on the way from our control group to the root.
GroupMemory ReadControlGroup() {
  GroupMemory tightest;
  uint64_t tightest_rest = kUnlimited;
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    const size_t second = line.find(':', line.find(':') + 1);
    if (second == std::string::npos) continue;
    const bool v2 = line.starts_with("0::");
    if (!v2 && line.find(":memory:") == std::string::npos) continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      const std::string directory = root + (path == "/" ? "" : path);
      const auto limit = ReadNumber(directory + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
      const auto used = ReadNumber(directory + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
      if (limit && used) {
        const uint64_t rest = *limit > *used ? *limit - *used : 0;
        if (rest < tightest_rest) {
          tightest_rest = rest;
          tightest = {*limit, *used};
        }
      }
      if (path.empty() || path == "/") break;
    }
  }
  return tightest;
}

}  // namespace

uint64_t AvailableMemory() {
  const GroupMemory group = ReadControlGroup();
  const uint64_t rest = group.limit == kUnlimited  ? kUnlimited
                        : group.limit > group.used ? group.limit - group.used
                                                   : 0;
  return std::min(MemInfo("MemAvailable"), rest);
}

uint64_t TotalMemory() { return std::min(MemInfo("MemTotal"), ReadControlGroup().limit); }

}  // namespace strata
