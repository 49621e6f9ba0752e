// One segment file. Reads and writes go past the page cache where the file system allows it: the
// cache belongs to the experts of the model, and direct writes reach the drive's own speed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "common/base/unique_fd.h"
#include "services/kvstore/segments/aligned_buffer.h"
#include "services/kvstore/segments/record_format.h"

#include "absl/status/statusor.h"

namespace strata::kvstore {

struct FileSize {
  uint64_t bytes = 0;      // its end
  uint64_t allocated = 0;  // what it takes on the drive: less where it has holes
};

class SegmentFile {
 public:
  enum class Mode { kRead, kWrite };  // kWrite creates it

  static absl::StatusOr<SegmentFile> Open(const std::string& path, Mode mode);

  // `buffer` is aligned in all respects (see kAlign). ResourceExhausted if the drive is full.
  absl::Status Write(uint64_t offset, const char* buffer, uint64_t bytes);
  // Several behind each other, at one go.
  absl::Status Write(uint64_t offset, const std::vector<std::span<const char>>& parts);
  // DataLoss if the file ends before.
  absl::Status Read(uint64_t offset, char* buffer, uint64_t bytes) const;
  absl::Status Sync();
  absl::Status Truncate(uint64_t bytes);
  // Gives the space back; reads as zeros afterwards. False if the file system cannot.
  bool PunchHole(uint64_t offset, uint64_t bytes);
  absl::StatusOr<FileSize> Size() const;
  // The first place at or behind `offset` that is not in a hole; the file's end if there is none.
  uint64_t NextData(uint64_t offset, uint64_t end) const;

 private:
  SegmentFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::string path_;
};

// Calls found(header, description) for every intact record header between `from` and the file's
// end, whatever lies between them: what cannot be a record is skipped in steps of kAlign. Returns
// the end of the last record that fits into the file.
absl::StatusOr<uint64_t> ScanRecords(
    const SegmentFile& file, uint32_t segment, uint64_t from,
    const std::function<void(const RecordHeader&, std::string_view)>& found);

}  // namespace strata::kvstore
