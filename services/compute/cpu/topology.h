// Which processors this process may compute on.
#pragma once

#include <sched.h>

namespace strata::compute {

struct Cores {
  // Physical cores in the process's affinity mask, at most the cgroup's CPU quota (rounded up).
  int count = 1;
  // The first allowed hardware thread of each of those cores: where workers may run. Two workers
  // on the siblings of one core would wait for each other at every barrier.
  cpu_set_t mask = {};
};

// Reads the affinity mask (taskset, cpuset cgroup), the CPU quota of the cgroup (v2 and v1) and the
// topology (hwloc). Never fails: whatever cannot be read counts as "no restriction", and at least
// one core is reported.
Cores UsableCores();

// Exposed for its test: the processors that "cpu.max" text of a cgroup allows ("150000 100000" is
// 2, "max 100000" or anything unreadable is 0 = no limit).
int CpuQuota(const char* cpu_max);

}  // namespace strata::compute
