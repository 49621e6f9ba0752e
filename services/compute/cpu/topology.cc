#include "services/compute/cpu/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

namespace strata::compute {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// The tightest quota on the path from this process's cgroup to the root, of both versions. In a
// container the root of the mount is usually its own group, which the last step covers.
int CgroupQuota() {
  int quota = 0;
  const auto tighten = [&quota](int limit) {
    if (limit > 0 && (quota == 0 || limit < quota)) quota = limit;
  };
  std::istringstream groups(ReadText("/proc/self/cgroup"));
  std::string line;
  while (std::getline(groups, line)) {  // number:controllers:path
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const bool version2 = controllers == ",,";
    if (!version2 && controllers.find(",cpu,") == std::string::npos) continue;
    std::string group = line.substr(second + 1);
    while (true) {
      if (version2) {
        tighten(CpuQuota(ReadText("/sys/fs/cgroup" + group + "/cpu.max").c_str()));
      } else {
        const std::string cfs = "/sys/fs/cgroup/cpu" + group + "/cpu.cfs_";
        tighten(CpuQuota((ReadText(cfs + "quota_us") + " " + ReadText(cfs + "period_us")).c_str()));
      }
      const size_t slash = group.rfind('/');
      if (slash == std::string::npos) break;
      group.resize(slash);
    }
  }
  return quota;
}

cpu_set_t OneThreadPerCore(const cpu_set_t& allowed) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return allowed;
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(
      raw, &hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0) return allowed;
  for (hwloc_obj_t core = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_CORE, nullptr); core != nullptr;
       core = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_CORE, core)) {
    for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
      if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed)) {
        CPU_SET(cpu, &mask);
        break;
      }
    }
  }
  return CPU_COUNT(&mask) > 0 ? mask : allowed;
}

}  // namespace

int CpuQuota(const char* cpu_max) {
  long long quota = 0;
  long long period = 0;
  if (std::sscanf(cpu_max, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) {
    return 0;
  }
  return static_cast<int>(std::min<long long>((quota + period - 1) / period, CPU_SETSIZE));
}

Cores UsableCores() {
  Cores cores;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) == 0) {
    // More processors than the set can name: let workers run anywhere.
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &allowed);
  }
  cores.mask = OneThreadPerCore(allowed);
  cores.count = std::max(1, CPU_COUNT(&cores.mask));
  if (const int quota = CgroupQuota(); quota > 0) cores.count = std::min(cores.count, quota);
  return cores;
}

}  // namespace strata::compute
