#include "services/kvstore/segments/segment_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "common/base/status.h"

#include "absl/strings/str_cat.h"

namespace strata::kvstore {
namespace {

// The status of a failed write: a full drive is told from a broken one.
absl::Status WriteError(const std::string& path) {
  const int error = errno;
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  const absl::Status status = ErrnoStatus(error, absl::StrCat("write '", path, "'"));
  return full ? absl::ResourceExhaustedError(status.message()) : status;
}

}  // namespace

absl::StatusOr<SegmentFile> SegmentFile::Open(const std::string& path, Mode mode) {
  const int flags = O_CLOEXEC | (mode == Mode::kRead ? O_RDONLY : O_RDWR | O_CREAT);
  UniqueFd fd(open(path.c_str(), flags | O_DIRECT, 0640));
  if (!fd.valid() && errno == EINVAL) fd.Reset(open(path.c_str(), flags, 0640));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open '", path, "'"));
  return SegmentFile(std::move(fd), path);
}

absl::Status SegmentFile::Write(uint64_t offset, const char* buffer, uint64_t bytes) {
  return Write(offset, {{buffer, bytes}});
}

absl::Status SegmentFile::Write(uint64_t offset, const std::vector<std::span<const char>>& parts) {
  std::vector<iovec> left;
  for (const std::span<const char> part : parts) {
    if (!part.empty()) left.push_back({const_cast<char*>(part.data()), part.size()});
  }
  for (auto next = left.begin(); next != left.end();) {
    const ssize_t n =
        pwritev(fd_.get(), &*next, static_cast<int>(left.end() - next), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return WriteError(path_);
    // A full drive may take a part; a part of a sector is its last word.
    if (n == 0 || static_cast<uint64_t>(n) % kAlign != 0) {
      return absl::ResourceExhaustedError(absl::StrCat("'", path_, "' takes no more"));
    }
    offset += static_cast<uint64_t>(n);
    auto taken = static_cast<size_t>(n);
    for (; next != left.end() && taken >= next->iov_len; ++next) taken -= next->iov_len;
    if (next != left.end()) {
      next->iov_base = static_cast<char*>(next->iov_base) + taken;
      next->iov_len -= taken;
    }
  }
  return absl::OkStatus();
}

absl::Status SegmentFile::Read(uint64_t offset, char* buffer, uint64_t bytes) const {
  while (bytes > 0) {
    const ssize_t n = pread(fd_.get(), buffer, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read '", path_, "'"));
    if (n == 0) return absl::DataLossError(absl::StrCat("'", path_, "' ends at ", offset));
    offset += static_cast<uint64_t>(n);
    buffer += n;
    bytes -= static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

absl::Status SegmentFile::Sync() {
  return fdatasync(fd_.get()) == 0 ? absl::OkStatus() : WriteError(path_);
}

absl::Status SegmentFile::Truncate(uint64_t bytes) {
  return ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0 ? absl::OkStatus()
                                                              : WriteError(path_);
}

bool SegmentFile::PunchHole(uint64_t offset, uint64_t bytes) {
  return fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                   static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
}

absl::StatusOr<FileSize> SegmentFile::Size() const {
  struct stat info {};
  if (fstat(fd_.get(), &info) != 0)
    return ErrnoStatus(errno, absl::StrCat("examine '", path_, "'"));
  constexpr uint64_t kStatUnit = 512;  // of st_blocks, whatever the file system's blocks are
  return FileSize{static_cast<uint64_t>(info.st_size),
                  static_cast<uint64_t>(info.st_blocks) * kStatUnit};
}

uint64_t SegmentFile::NextData(uint64_t offset, uint64_t end) const {
  const off_t at = lseek(fd_.get(), static_cast<off_t>(offset), SEEK_DATA);
  if (at >= 0) return static_cast<uint64_t>(at) / kAlign * kAlign;
  return errno == ENXIO ? end : offset;
}

absl::StatusOr<uint64_t> ScanRecords(
    const SegmentFile& file, uint32_t segment, uint64_t from,
    const std::function<void(const RecordHeader&, std::string_view)>& found) {
  STRATA_ASSIGN_OR_RETURN(const FileSize size, file.Size());
  uint64_t end = from;
  AlignedBuffer buffer(kAlign);
  for (uint64_t at = from; at + kAlign <= size.bytes;) {
    // Where the drive cannot read, no record is found; there may be some behind.
    bool intact = file.Read(at, buffer.data(), kAlign).ok();
    std::optional<RecordHeader> header;
    if (intact) header = DecodeHeader({buffer.data(), kAlign}, segment, at);
    intact = header && at + header->RecordBytes() <= size.bytes;
    if (intact && header->DataOffset() > kAlign) {
      if (buffer.size() < header->DataOffset()) buffer = AlignedBuffer(header->DataOffset());
      intact = file.Read(at, buffer.data(), header->DataOffset()).ok();
    }
    intact = intact && HeaderIsIntact(*header, {buffer.data(), buffer.size()});
    if (!intact) {
      at = std::max(at + kAlign, file.NextData(at + kAlign, size.bytes));
      continue;
    }
    found(*header, {buffer.data() + RecordHeader::kBytes, header->description_bytes});
    at = end = at + header->RecordBytes();
  }
  return end;
}

}  // namespace strata::kvstore
