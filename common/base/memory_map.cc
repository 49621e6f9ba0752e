#include "common/base/memory_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace strata {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Where to map `size` bytes so that huge pages fit: the kernel maps a large page of a file or of a
// memfd as one only if address and offset agree modulo its size. Advice: whoever maps something
// there first only spoils the alignment.
void* AlignedPlace(size_t size) {
  if (size < kHugePage) return nullptr;
  void* free = mmap(nullptr, size + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (free == MAP_FAILED) return nullptr;
  munmap(free, size + kHugePage);
  const auto address = reinterpret_cast<uintptr_t>(free);
  return reinterpret_cast<void*>((address + kHugePage - 1) / kHugePage * kHugePage);
}

}  // namespace

MemoryMap::MemoryMap(MemoryMap&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MemoryMap& MemoryMap::operator=(MemoryMap&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MemoryMap::~MemoryMap() {
  if (data_ != nullptr) munmap(data_, size_);
}

absl::StatusOr<MemoryMap> MemoryMap::ReadFile(const std::string& path, size_t size) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("cannot open '", path, "'"));
  struct stat info;
  if (fstat(fd.get(), &info) != 0)
    return ErrnoStatus(errno, absl::StrCat("cannot stat '", path, "'"));
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("'", path, "' is not a regular file"));
  }
  const size_t file_size = static_cast<size_t>(info.st_size);
  if (size == 0) size = file_size;
  if (size > file_size) {
    return absl::OutOfRangeError(
        absl::StrCat("'", path, "' has ", file_size, " bytes, ", size, " were to be mapped"));
  }
  if (size == 0) return MemoryMap();
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus(errno, absl::StrCat("cannot map '", path, "'"));
  return MemoryMap(static_cast<std::byte*>(data), size);
}

absl::StatusOr<MemoryMap> MemoryMap::Shared(int fd, size_t size, bool writable) {
  void* data = mmap(AlignedPlace(size), size, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                    MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return ErrnoStatus(errno, absl::StrCat("cannot map ", size, " shared bytes"));
  }
  return MemoryMap(static_cast<std::byte*>(data), size);
}

absl::StatusOr<MemoryMap> MemoryMap::Anonymous(size_t size, bool huge) {
  void* data = mmap(huge ? AlignedPlace(size) : nullptr, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return ErrnoStatus(errno, absl::StrCat("cannot allocate ", size, " bytes"));
  if (huge) madvise(data, size, MADV_HUGEPAGE);  // advice only: refusal costs speed, not function
  return MemoryMap(static_cast<std::byte*>(data), size);
}

}  // namespace strata
