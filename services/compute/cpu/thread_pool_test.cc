#include "services/compute/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "services/compute/cpu/topology.h"

namespace strata::compute {
namespace {

TEST(ThreadPool, RunsEveryTileOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads, 50, nullptr);
    ASSERT_EQ(pool.threads(), threads);
    for (const int64_t tiles : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(tiles);  // plain: a tile run twice at once is a race tsan reports
      pool.ParallelFor(tiles, [&](int64_t tile, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        ++runs[tile];
      });
      for (const int count : runs) EXPECT_EQ(count, 1);
    }
  }
}

// Many tiny jobs with other work in between: workers are met spinning, asleep and late.
TEST(ThreadPool, ManyJobsBackToBack) {
  ThreadPool pool(4, 20, nullptr);
  int64_t sum = 0;
  for (int job = 0; job < 20000; ++job) {
    std::atomic<int64_t> part{0};
    pool.ParallelFor(5, [&](int64_t tile, int) { part.fetch_add(tile + 1); });
    sum += part.load();
    if (job % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(sum, 20000 * 15);
}

// What one job wrote, the next one reads without further synchronisation.
TEST(ThreadPool, JobsAreOrdered) {
  ThreadPool pool(3, 20, nullptr);
  std::vector<int64_t> written(64, -1);
  std::vector<int64_t> seen(64, 0);
  for (int job = 0; job < 500; ++job) {
    pool.ParallelFor(64, [&](int64_t tile, int) { written[tile] = job; });
    // The neighbour's value was probably written by another thread.
    pool.ParallelFor(64, [&](int64_t tile, int) { seen[tile] += written[(tile + 1) % 64] == job; });
  }
  for (const int64_t count : seen) EXPECT_EQ(count, 500);
}

// Two pools on the same cores, more threads than cores: slow, but it ends.
TEST(ThreadPool, Oversubscribed) {
  std::atomic<int64_t> total{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      ThreadPool pool(4, 2000, nullptr);
      for (int job = 0; job < 200; ++job) {
        pool.ParallelFor(16, [&](int64_t, int) { total.fetch_add(1); });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total.load(), 3 * 200 * 16);
}

TEST(Topology, FollowsTheAffinityMask) {
  const Cores all = UsableCores();
  EXPECT_GE(all.count, 1);
  EXPECT_LE(all.count, CPU_COUNT(&all.mask));

  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const Cores limited = UsableCores();
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(limited.count, 1);
  EXPECT_TRUE(CPU_EQUAL(&limited.mask, &one));
}

TEST(Topology, Quota) {
  EXPECT_EQ(CpuQuota("max 100000\n"), 0);
  EXPECT_EQ(CpuQuota("150000 100000\n"), 2);
  EXPECT_EQ(CpuQuota("200000 100000"), 2);
  EXPECT_EQ(CpuQuota("50000 100000"), 1);
  EXPECT_EQ(CpuQuota("-1 100000"), 0);
  EXPECT_EQ(CpuQuota(""), 0);
}

// A process in a cgroup (version 1) with a quota of one processor. Needs the right to make one.
TEST(Topology, FollowsTheQuotaOfItsCgroup) {
  const std::filesystem::path group =
      "/sys/fs/cgroup/cpu/strata-topology-test-" + std::to_string(getpid());
  std::error_code error;
  if (!std::filesystem::is_directory("/sys/fs/cgroup/cpu") ||
      !std::filesystem::create_directory(group, error)) {
    GTEST_SKIP() << "no cgroup can be made here: " << error.message();
  }
  const auto write = [&group](const char* file, const std::string& value) {
    std::ofstream out(group / file);
    out << value << std::flush;
    return out.good();
  };
  const bool limited = write("cpu.cfs_period_us", "100000") && write("cpu.cfs_quota_us", "100000");
  int status = 0;
  if (limited) {
    const pid_t child = fork();
    if (child == 0) {
      const bool joined = write("cgroup.procs", std::to_string(getpid()));
      _exit(joined ? UsableCores().count : 99);
    }
    ASSERT_EQ(waitpid(child, &status, 0), child);
  }
  std::filesystem::remove(group, error);
  if (!limited) GTEST_SKIP() << "the cgroup has no CPU controller";
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 99) GTEST_SKIP() << "the cgroup cannot be joined";
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace strata::compute
