#include "common/base/memory_info.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace strata {
namespace {

// A machine made of files.
class FakeMachine {
 public:
  FakeMachine() {
    std::string pattern = testing::TempDir() + "machineXXXXXX";
    root = mkdtemp(pattern.data());
  }
  ~FakeMachine() { std::filesystem::remove_all(root); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  std::string root;
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
