#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>

#include "common/base/bus_error.h"
#include "common/base/checked.h"
#include "common/base/drive_rate.h"
#include "common/base/eventually.h"
#include "common/base/memory_map.h"
#include "common/base/periodic_thread.h"
#include "common/base/status.h"
#include "common/base/test_folder.h"
#include "common/base/unique_fd.h"

namespace strata {
namespace {

TEST(Checked, OverflowIsEmpty) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(CheckedAdd(1, 2), 3);
  EXPECT_EQ(CheckedAdd(kMax, 1), std::nullopt);
  EXPECT_EQ(CheckedMul(1ull << 32, 1ull << 31), 1ull << 63);
  EXPECT_EQ(CheckedMul(1ull << 32, 1ull << 32), std::nullopt);
  EXPECT_EQ(CheckedAlignUp(33, 32), 64);
  EXPECT_EQ(CheckedAlignUp(kMax - 3, 32), std::nullopt);
}

TEST(UniqueFd, ClosesOnce) {
  int raw;
  {
    UniqueFd a(open("/dev/null", O_RDONLY));
    raw = a.get();
    UniqueFd b(std::move(a));
    EXPECT_FALSE(a.valid());
    EXPECT_EQ(b.get(), raw);
  }
  EXPECT_EQ(fcntl(raw, F_GETFD), -1);
}

TEST(MemoryMap, ReadsAFileAndNamesAMissingOne) {
  const TestFolder folder;
  const std::string path = folder / "memory_map_test";
  std::ofstream(path) << "hello";
  auto map = MemoryMap::ReadFile(path);
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->size(), 5);
  EXPECT_EQ(static_cast<char>(map->data()[4]), 'o');
  EXPECT_EQ(MemoryMap::ReadFile(path, 6).status().code(), absl::StatusCode::kOutOfRange);
  const auto missing = MemoryMap::ReadFile(path + ".none");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find(path + ".none"), absl::string_view::npos);
}

TEST(MemoryMap, PutsWhatIsLargeWhereHugePagesFit) {
  constexpr size_t kHuge = size_t{2} << 20;
  const UniqueFd fd(memfd_create("memory_map_test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(fd.get(), 2 * kHuge), 0);
  for (const size_t size : {kHuge, kHuge + 4097, 2 * kHuge}) {
    const MemoryMap shared = MemoryMap::Shared(fd.get(), size, /*writable=*/true).value();
    const MemoryMap own = MemoryMap::Anonymous(size, /*huge=*/true).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(shared.data()) % kHuge, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(own.data()) % kHuge, 0u);
  }
}

TEST(BusError, NamesTheFileThatWasCut) {
  const TestFolder folder;
  const std::string path = folder.Save("model.gguf", std::string(3 * 4096, 'x'));
  const auto map = MemoryMap::ReadFile(path);
  ASSERT_TRUE(map.ok()) << map.status();
  std::filesystem::resize_file(path, 4096);
  EXPECT_EXIT(
      {
        ExplainBusErrors();
        volatile const std::byte* const cut = map->data() + 2 * 4096;
        [[maybe_unused]] const std::byte gone = *cut;
      },
      testing::KilledBySignal(SIGBUS), "a page of the mapped file '" + path + "' cannot be read");
}

TEST(DriveRate, TimesAFileAndNamesWhatCannotBe) {
  const TestFolder folder;
  const std::string path = folder / "drive_rate_test";
  std::ofstream(path) << std::string(100, 'x');
  const auto small = MeasureDriveRate(path);
  EXPECT_EQ(small.status().code(), absl::StatusCode::kFailedPrecondition);
  std::ofstream(path) << std::string(3 << 20, 'x');
  const auto rate = MeasureDriveRate(path);
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_GT(*rate, 0);
  const auto missing = MeasureDriveRate(path + ".none");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find(path + ".none"), absl::string_view::npos);
}

TEST(PeriodicThread, CallsAgainAndAgainUntilStopped) {
  std::atomic<int> calls{0};
  PeriodicThread thread(std::chrono::milliseconds(1), [&] { ++calls; });
  EXPECT_TRUE(Eventually([&] { return calls >= 3; }));
  thread.Stop();
  const int at_the_end = calls;
  EXPECT_FALSE(Eventually([&] { return calls > at_the_end; }, std::chrono::milliseconds(1),
                          std::chrono::milliseconds(20)));
  thread.Stop();  // once more is nothing
}

TEST(PeriodicThread, StopsWithoutWaitingForTheInterval) {
  PeriodicThread thread(std::chrono::hours(24), [] { FAIL(); });
}

TEST(Status, MacrosPassValuesAndErrors) {
  const auto half = [](int x) -> absl::StatusOr<int> {
    if (x % 2 != 0) return absl::InvalidArgumentError("odd");
    return x / 2;
  };
  const auto quarter = [&](int x) -> absl::StatusOr<int> {
    STRATA_ASSIGN_OR_RETURN(const int h, half(x));
    return half(h);
  };
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(Annotate(quarter(6).status(), "here").message(), "here: odd");
  EXPECT_EQ(ErrnoStatus(ENOSPC, "x").code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace strata
