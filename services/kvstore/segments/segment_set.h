// A folder of segment files and the account of what in them is still used.
//
// Records are appended to the newest segment; a new one begins when it is full, numbers are never
// used twice. Nothing is ever overwritten: a record stays where it is until it is released, and is
// then dead space. Reclaim() gives dead space back by deleting segments in which nothing lives and
// punching holes into the others, so nothing is written a second time. Where the file system cannot
// punch holes (and to bound the number of thin files), the owner moves what still lives in a
// segment of little live share and releases it (see Thin).
//
// Append, Sync, Reclaim: one thread at a time. The rest: any thread at any time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/kvstore/segments/segment_file.h"

#include "absl/status/statusor.h"

namespace strata::kvstore {

struct FoundRecord {
  BlockId id;
  Extent extent;
  uint64_t data_bytes = 0;
  uint64_t data_checksum = 0;
  std::string_view description;
};

class SegmentSet {
 public:
  struct Options {
    std::string folder;
    uint64_t segment_bytes = uint64_t{256} << 20;
    bool read_only = false;
    bool punch_holes = true;
  };
  // What a segment's live share must fall to before it is worth moving the rest: it costs at most
  // 1 / (1 / kThinShare - 1), 14 %, of the bytes that were written, in writes.
  static constexpr double kThinShare = 0.125;

  // Creates the folder unless it is read-only. Nothing lives in it until Adopt says so.
  static absl::StatusOr<std::unique_ptr<SegmentSet>> Open(const Options& options);

  // Writes a record; it lives from then on. On the drive only after Sync().
  absl::StatusOr<Extent> Append(const BlockId& id, std::string_view description,
                                std::string_view data, uint64_t data_checksum);
  // All records appended so far are on the drive. After a failure none since the last Sync is.
  absl::Status Sync();
  // Gives dead space back; returns the bytes.
  uint64_t Reclaim();

  // The data of a record. NotFound if its file is gone. It is not verified.
  absl::StatusOr<BlockData> Read(const Extent& extent, uint64_t data_bytes) const;

  // At start: a record that the index knows. False if its segment is not there.
  bool Adopt(const Extent& extent);
  // The record is of no use any more.
  void Release(const Extent& extent);

  // The same, and their descriptions are not to be found again: they may hold somebody's text.
  void Forget(std::span<const Extent> extents);

  // At start, after Adopt: calls found for all records behind the last adopted one, of which the
  // index has not heard; all that there are if none was adopted. Only in the last segment they may
  // lack data. Cuts off what was not written to its end.
  absl::Status ScanTail(const std::function<void(const FoundRecord&)>& found);
  bool IsLast(uint32_t segment) const;
  // At start, at last: everything not adopted is dead.
  void CountDead();

  // A segment of little live share that is not being written; moving it pays.
  std::optional<uint32_t> Thin() const;

  // Bytes that n bytes of data take with this long a description.
  static uint64_t RecordBytes(uint64_t description_bytes, uint64_t data_bytes);

  bool empty() const;
  // Live and dead records. Holes count as nothing.
  uint64_t disk_bytes() const;
  uint64_t dead_bytes() const;
  size_t segments() const;
  uint64_t written_bytes() const;  // since Open

 private:
  struct Segment {
    uint64_t end = 0;  // of the file
    uint64_t live = 0;
    std::map<uint64_t, uint64_t> living;  // offset -> bytes
    std::map<uint64_t, uint64_t> dead;    // not given back yet
  };

  explicit SegmentSet(Options options) : options_(std::move(options)) {}
  std::string PathOf(uint32_t segment) const;
  absl::Status FindFiles();
  absl::Status OpenForAppend(uint64_t bytes);
  absl::Status Scan(uint32_t number, uint64_t from,
                    const std::function<void(const FoundRecord&)>& found);

  const Options options_;
  mutable std::mutex mutex_;
  std::map<uint32_t, Segment> segments_;
  uint64_t live_ = 0;
  uint64_t dead_ = 0;
  uint64_t written_ = 0;
  // The writer's own.
  std::optional<SegmentFile> active_;
  uint32_t active_number_ = 0;
  uint32_t next_number_ = 1;
  AlignedBuffer buffer_;
};

}  // namespace strata::kvstore
