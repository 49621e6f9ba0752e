#include "common/shm/memfd.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "common/base/status.h"

namespace strata::shm {
namespace {

int SealBits(SealKind kind) {
  const int fixed = F_SEAL_GROW | F_SEAL_SHRINK;
  return kind == SealKind::kFixedSize ? fixed : fixed | F_SEAL_FUTURE_WRITE;
}

}  // namespace

absl::StatusOr<UniqueFd> CreateMemfd(const std::string& name, uint64_t bytes, bool huge_tlb) {
  const unsigned flags =
      MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge_tlb ? MFD_HUGETLB | MFD_HUGE_2MB : 0u);
  UniqueFd fd(memfd_create(name.c_str(), flags));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("cannot create memfd '", name, "'"));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno,
                       absl::StrCat("cannot give memfd '", name, "' a size of ", bytes, " bytes"));
  }
  return fd;
}

absl::Status Seal(int fd, SealKind kind) {
  // F_SEAL_SEAL last of all: without it a client that holds the descriptor could add seals itself.
  if (fcntl(fd, F_ADD_SEALS, SealBits(kind) | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "cannot seal shared memory");
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> ReadOnlyDescriptor(int fd) {
  if (fchmod(fd, 0444) != 0) return ErrnoStatus(errno, "cannot restrict shared memory");
  UniqueFd read_only(open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_RDONLY | O_CLOEXEC));
  if (!read_only.valid()) {
    return ErrnoStatus(errno, "cannot open shared memory for reading (is /proc mounted?)");
  }
  return read_only;
}

absl::Status CheckReadOnly(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return ErrnoStatus(errno, "received descriptor is not usable");
  if ((flags & O_ACCMODE) != O_RDONLY) {
    return absl::InvalidArgumentError("received shared memory could be written by its clients");
  }
  return absl::OkStatus();
}

absl::Status CheckSealed(int fd, uint64_t bytes, SealKind kind) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, "cannot stat received shared memory");
  if (static_cast<uint64_t>(info.st_size) != bytes) {
    return absl::InvalidArgumentError(absl::StrCat("received shared memory has ", info.st_size,
                                                   " bytes, the hello message says ", bytes));
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) return ErrnoStatus(errno, "received descriptor is not a sealable memfd");
  if ((seals & SealBits(kind)) != SealBits(kind)) {
    return absl::InvalidArgumentError("received shared memory lacks the seals of this protocol");
  }
  return absl::OkStatus();
}

}  // namespace strata::shm
