#include "common/base/drive_rate.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/status.h"
#include "common/base/unique_fd.h"

#include "absl/strings/str_cat.h"

namespace strata {
namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kMostPieces = 256;
constexpr size_t kThreads = 8;  // reads under way: enough for an NVMe drive to be busy

}  // namespace

absl::StatusOr<double> MeasureDriveRate(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  if (!fd.valid() && errno == EINVAL) fd.Reset(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open '", path, "'"));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("examine '", path, "'"));
  const size_t whole = static_cast<size_t>(info.st_size) / kPiece;
  if (whole == 0) {
    return absl::FailedPreconditionError(absl::StrCat("'", path, "' is too small to time"));
  }
  const size_t pieces = std::min(whole, kMostPieces);
  std::atomic<size_t> next{0};
  std::atomic<int> error{0};
  const auto read_pieces = [&] {
    const std::unique_ptr<void, decltype(&std::free)> buffer(std::aligned_alloc(4096, kPiece),
                                                             &std::free);
    for (size_t i; (i = next++) < pieces;) {
      const auto offset = static_cast<off_t>(i * (whole / pieces) * kPiece);
      if (buffer == nullptr) {
        error = ENOMEM;
      } else if (pread(fd.get(), buffer.get(), kPiece, offset) < 0) {
        error = errno;
      }
    }
  };
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (size_t i = 0; i < kThreads; ++i) threads.emplace_back(read_pieces);
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (error != 0) return ErrnoStatus(error, absl::StrCat("read '", path, "'"));
  return static_cast<double>(pieces * kPiece) / seconds.count();
}

}  // namespace strata
