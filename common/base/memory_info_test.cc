#include "common/base/memory_info.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/test_folder.h"

namespace strata {
namespace {

// A machine made of files.
struct FakeMachine {
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }

  const TestFolder folder;
  const std::string root = folder.path();
};

TEST(MemoryInfo, IsTheLeastOfMachineAndGroups) {
  FakeMachine machine;
  EXPECT_EQ(AvailableMemory(machine.root), 0u);
  machine.Write("/proc/meminfo", "MemTotal: 100 kB\nMemAvailable:   5000 kB\nHugePages_Free:  3\n");
  EXPECT_EQ(AvailableMemory(machine.root), 5000u * 1024);
  EXPECT_EQ(TotalMemory(machine.root), 100u * 1024);
  machine.Write("/proc/self/cgroup", "0::/system.slice/strata.service\n");
  const std::string slice = "/sys/fs/cgroup/system.slice/";
  machine.Write(slice + "strata.service/memory.max", "max\n");
  machine.Write(slice + "strata.service/memory.current", "1000\n");
  EXPECT_EQ(AvailableMemory(machine.root), 5000u * 1024);
  machine.Write(slice + "memory.max", "3000000\n");
  machine.Write(slice + "memory.current", "1500000\n");
  EXPECT_EQ(AvailableMemory(machine.root), 1500000u);
  machine.Write(slice + "memory.stat", "anon 5\nactive_file 100000\ninactive_file 400000\n");
  EXPECT_EQ(AvailableMemory(machine.root), 2000000u);
  machine.Write(slice + "strata.service/memory.max", "1500\n");
  EXPECT_EQ(AvailableMemory(machine.root), 500u);
  EXPECT_EQ(TotalMemory(machine.root), 1500u);
  machine.Write(slice + "strata.service/memory.current", "99999\n");
  EXPECT_EQ(AvailableMemory(machine.root), 0u);
}

TEST(MemoryInfo, HeedsGroupsOfVersion1) {
  FakeMachine machine;
  machine.Write("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:   5000 kB\n");
  machine.Write("/proc/self/cgroup",
                "12:cpu,cpuacct:/busy\n4:memory:/boxes/one\n1:name=systemd:/x\n0::/unified\n");
  const std::string mount = "/sys/fs/cgroup/memory/";
  machine.Write(mount + "memory.limit_in_bytes", "9223372036854771712\n");
  machine.Write(mount + "memory.usage_in_bytes", "4000000\n");
  EXPECT_EQ(AvailableMemory(machine.root), 5000u * 1024);
  EXPECT_EQ(TotalMemory(machine.root), 9000u * 1024);
  machine.Write(mount + "boxes/one/memory.limit_in_bytes", "2000000\n");
  machine.Write(mount + "boxes/one/memory.usage_in_bytes", "1500000\n");
  machine.Write(mount + "boxes/one/memory.stat",
                "inactive_file 7\ntotal_active_file 100000\ntotal_inactive_file 200000\n");
  EXPECT_EQ(AvailableMemory(machine.root), 800000u);
  EXPECT_EQ(TotalMemory(machine.root), 2000000u);
  machine.Write(mount + "boxes/memory.limit_in_bytes", "1000000\n");
  machine.Write(mount + "boxes/memory.usage_in_bytes", "900000\n");
  EXPECT_EQ(AvailableMemory(machine.root), 100000u);
  EXPECT_EQ(TotalMemory(machine.root), 1000000u);
}

// Without a namespace of its own, a container sees a path that is not there, and its group as root.
TEST(MemoryInfo, HeedsAContainersGroup) {
  FakeMachine machine;
  machine.Write("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:   5000 kB\n");
  machine.Write("/proc/self/cgroup", "4:memory:/docker/0123\n");
  machine.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000\n");
  machine.Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n");
  EXPECT_EQ(AvailableMemory(machine.root), 2000000u);
  EXPECT_EQ(TotalMemory(machine.root), 3000000u);
}

TEST(MemoryInfo, ReadsMemInfo) {
  const std::string text = "MemAvailable:    12 kB\nHugePages_Free:       7\nHugepagesize: 2048 kB";
  EXPECT_EQ(MemInfoField(text, "MemAvailable"), 12u * 1024);
  EXPECT_EQ(MemInfoField(text, "HugePages_Free"), 7u);
  EXPECT_EQ(MemInfoField(text, "Hugepagesize"), 2048u * 1024);
  EXPECT_EQ(MemInfoField(text, "Huge"), std::nullopt);
  EXPECT_GT(AvailableMemory(), 1u << 20);
}

}  // namespace
}  // namespace strata
