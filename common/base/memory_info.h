// How much memory this process may take: what the machine has free, and what its control groups
// still allow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata {

// Bytes that can be allocated without swapping (MemAvailable) or being killed (memory limits of the
// own control group and its ancestors, version 2 and version 1, page cache counted as free). `root`
// is where /proc and /sys are found: "" on a real machine.
uint64_t AvailableMemory(const std::string& root = "");

// Physical memory, at most what the control groups allow.
uint64_t TotalMemory(const std::string& root = "");

// What should stay free for others on a machine of so much memory: 1/32, at most 1 GiB.
constexpr uint64_t MemoryReserve(uint64_t total) {
  return total / 32 < 1 << 30 ? total / 32 : 1 << 30;
}

// The value of "Name:  123 kB" in the text of /proc/meminfo, in bytes (or as a plain count where
// there is no unit).
std::optional<uint64_t> MemInfoField(std::string_view text, std::string_view name);

}  // namespace strata
