#include "services/kvstore/segments/segment_set.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace strata::kvstore {
namespace {

constexpr std::string_view kSuffix = ".segment";

std::optional<uint32_t> NumberOf(const std::filesystem::path& path) {
  const std::string name = path.stem().string();
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (path.extension() != kSuffix || error != std::errc() || end != name.data() + name.size()) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

std::string SegmentSet::PathOf(uint32_t segment) const {
  return absl::StrFormat("%s/%08d%s", options_.folder, segment, std::string(kSuffix));
}

uint64_t SegmentSet::RecordBytes(uint64_t description_bytes, uint64_t data_bytes) {
  return AlignUp(RecordHeader::kBytes + description_bytes) + AlignUp(data_bytes);
}

absl::StatusOr<std::unique_ptr<SegmentSet>> SegmentSet::Open(const Options& options) {
  std::error_code error;
  if (!options.read_only) std::filesystem::create_directories(options.folder, error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot create '", options.folder, "': ", error.message()));
  }
  auto set = std::unique_ptr<SegmentSet>(new SegmentSet(options));
  STRATA_RETURN_IF_ERROR(set->FindFiles());
  return set;
}

absl::Status SegmentSet::FindFiles() {
  std::error_code error;
  std::filesystem::directory_iterator files(options_.folder, error);
  if (error && options_.read_only) return absl::OkStatus();  // a store that never kept anything
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot list '", options_.folder, "': ", error.message()));
  }
  for (const auto& file : files) {
    const std::optional<uint32_t> number = NumberOf(file.path());
    const uint64_t bytes = number ? file.file_size(error) : 0;
    if (!number || error) continue;
    segments_[*number].end = bytes;
    next_number_ = std::max(next_number_, *number + 1);
  }
  return absl::OkStatus();
}

absl::Status SegmentSet::OpenForAppend(uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    // After a restart the last segment goes on.
    if (!active_ && !segments_.empty()) active_number_ = segments_.rbegin()->first;
    const auto it = segments_.find(active_number_);
    // An empty one was emptied: its places had been used.
    const bool fits = it != segments_.end() && it->second.end > 0 &&
                      it->second.end + bytes <= options_.segment_bytes;
    if (active_ && fits) return absl::OkStatus();
    if (!fits) active_number_ = next_number_;
  }
  if (active_) STRATA_RETURN_IF_ERROR(active_->Sync());
  active_.reset();
  STRATA_ASSIGN_OR_RETURN(active_,
                          SegmentFile::Open(PathOf(active_number_), SegmentFile::Mode::kWrite));
  // A file is found after a power failure only if its folder was written as well.
  const UniqueFd folder(open(options_.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.valid()) (void)fsync(folder.get());
  const std::lock_guard lock(mutex_);
  next_number_ = std::max(next_number_, active_number_ + 1);
  Segment& segment = segments_[active_number_];
  // The last one may end in the middle of a record.
  segment.end = AlignUp(segment.end);
  return absl::OkStatus();
}

absl::StatusOr<Extent> SegmentSet::Append(const BlockId& id, std::string_view description,
                                          std::string_view data, uint64_t data_checksum) {
  if (options_.read_only) {
    return absl::FailedPreconditionError(absl::StrCat("'", options_.folder, "' can only be read"));
  }
  RecordHeader header{0,           0,  static_cast<uint32_t>(description.size()),
                      data.size(), id, data_checksum};
  const uint64_t bytes = header.RecordBytes();
  STRATA_RETURN_IF_ERROR(OpenForAppend(bytes));
  Extent extent{active_number_, 0, bytes};
  {
    const std::lock_guard lock(mutex_);
    extent.offset = segments_[active_number_].end;
  }
  header.segment = extent.segment;
  header.offset = extent.offset;
  // Data that direct I/O accepts is written from where it lies, but for what the last page holds.
  const bool aligned = reinterpret_cast<uintptr_t>(data.data()) % kAlign == 0;
  const uint64_t in_place = aligned ? data.size() / kAlign * kAlign : 0;
  const uint64_t copied = bytes - in_place;
  if (buffer_.size() < copied) buffer_ = AlignedBuffer(copied);
  const uint64_t head = header.DataOffset();
  std::memset(buffer_.data(), 0, head);
  EncodeHeader(header, description, buffer_.data());
  std::memcpy(buffer_.data() + RecordHeader::kBytes, description.data(), description.size());
  const std::string_view rest = data.substr(in_place);
  std::memcpy(buffer_.data() + head, rest.data(), rest.size());
  std::memset(buffer_.data() + head + rest.size(), 0, copied - head - rest.size());
  absl::Status written = active_->Write(
      extent.offset,
      {{buffer_.data(), head}, {data.data(), in_place}, {buffer_.data() + head, copied - head}});
  if (!written.ok()) {
    (void)active_->Truncate(extent.offset);  // frees what was taken of a full drive
    return written;
  }
  const std::lock_guard lock(mutex_);
  Segment& segment = segments_[active_number_];
  segment.end = extent.offset + bytes;
  segment.living[extent.offset] = bytes;
  segment.live += bytes;
  live_ += bytes;
  written_ += bytes;
  return extent;
}

absl::Status SegmentSet::Sync() {
  if (!active_) return absl::OkStatus();
  absl::Status synced = active_->Sync();
  if (!synced.ok()) {
    // What the kernel could not write it forgets; go on in a file that has nothing to hide.
    active_.reset();
    const std::lock_guard lock(mutex_);
    segments_[active_number_].end = options_.segment_bytes;
  }
  return synced;
}

absl::StatusOr<BlockData> SegmentSet::Read(const Extent& extent, uint64_t data_bytes) const {
  const uint64_t padded = AlignUp(data_bytes);
  if (padded > extent.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a record of ", extent.bytes, " bytes cannot hold ", data_bytes));
  }
  STRATA_ASSIGN_OR_RETURN(const SegmentFile file,
                          SegmentFile::Open(PathOf(extent.segment), SegmentFile::Mode::kRead));
  AlignedBuffer buffer(padded);
  STRATA_RETURN_IF_ERROR(file.Read(extent.offset + extent.bytes - padded, buffer.data(), padded));
  return BlockData(std::move(buffer), data_bytes);
}

bool SegmentSet::Adopt(const Extent& extent) {
  const std::lock_guard lock(mutex_);
  const auto it = segments_.find(extent.segment);
  if (it == segments_.end() || extent.bytes == 0 || extent.offset + extent.bytes > it->second.end) {
    return false;
  }
  if (!it->second.living.emplace(extent.offset, extent.bytes).second) return false;
  it->second.live += extent.bytes;
  live_ += extent.bytes;
  return true;
}

void SegmentSet::Release(const Extent& extent) {
  const std::lock_guard lock(mutex_);
  const auto it = segments_.find(extent.segment);
  if (it == segments_.end() || it->second.living.erase(extent.offset) == 0) return;
  it->second.live -= extent.bytes;
  it->second.dead[extent.offset] = extent.bytes;
  live_ -= extent.bytes;
  dead_ += extent.bytes;
}

void SegmentSet::Forget(std::span<const Extent> extents) {
  std::map<uint32_t, std::vector<uint64_t>> by_segment;
  for (const Extent& extent : extents) {
    Release(extent);
    by_segment[extent.segment].push_back(extent.offset);
  }
  // Holes do it where there are any; but here nobody knows when they come.
  AlignedBuffer zeros(kAlign);
  std::memset(zeros.data(), 0, zeros.size());
  for (const auto& [segment, offsets] : by_segment) {
    auto file = SegmentFile::Open(PathOf(segment), SegmentFile::Mode::kWrite);
    if (!file.ok()) continue;
    for (const uint64_t offset : offsets) (void)file->Write(offset, zeros.data(), zeros.size());
  }
}

absl::Status SegmentSet::Scan(uint32_t number, uint64_t from,
                              const std::function<void(const FoundRecord&)>& found) {
  STRATA_ASSIGN_OR_RETURN(
      SegmentFile file,
      SegmentFile::Open(PathOf(number),
                        options_.read_only ? SegmentFile::Mode::kRead : SegmentFile::Mode::kWrite));
  STRATA_ASSIGN_OR_RETURN(
      const uint64_t end,
      ScanRecords(file, number, from,
                  [&](const RecordHeader& header, std::string_view description) {
                    found({header.id,
                           {number, header.offset, header.RecordBytes()},
                           header.data_bytes,
                           header.data_checksum,
                           description});
                  }));
  const std::lock_guard lock(mutex_);
  Segment& segment = segments_[number];
  if (end >= segment.end || options_.read_only) return absl::OkStatus();
  if (file.NextData(end, segment.end) < segment.end) {
    LogWarning("'", PathOf(number), "' ends in ", segment.end - end,
               " bytes that are no complete record: cut off");
  }
  STRATA_RETURN_IF_ERROR(file.Truncate(end));
  segment.end = end;
  return absl::OkStatus();
}

absl::Status SegmentSet::ScanTail(const std::function<void(const FoundRecord&)>& found) {
  std::vector<std::pair<uint32_t, uint64_t>> tails;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = segments_.rbegin(); it != segments_.rend(); ++it) {
      const auto& living = it->second.living;
      const uint64_t from = living.empty() ? 0 : living.rbegin()->first + living.rbegin()->second;
      tails.emplace_back(it->first, from);
      if (!living.empty()) break;
    }
  }
  std::reverse(tails.begin(), tails.end());
  for (const auto& [number, from] : tails) STRATA_RETURN_IF_ERROR(Scan(number, from, found));
  return absl::OkStatus();
}

bool SegmentSet::IsLast(uint32_t segment) const {
  const std::lock_guard lock(mutex_);
  return !segments_.empty() && segment == segments_.rbegin()->first;
}

void SegmentSet::CountDead() {
  const std::lock_guard lock(mutex_);
  for (auto& entry : segments_) {
    Segment& segment = entry.second;
    const auto file = SegmentFile::Open(PathOf(entry.first), SegmentFile::Mode::kRead);
    if (!file.ok()) continue;
    const absl::StatusOr<FileSize> size = file->Size();
    // What was given back before is a hole already.
    if (size.ok() && size->allocated <= segment.live) continue;
    uint64_t at = 0;
    const auto gap = [&](uint64_t until) {
      const uint64_t from = std::min(until, file->NextData(at, segment.end));
      if (from < until) {
        segment.dead[from] = until - from;
        dead_ += until - from;
      }
    };
    for (const auto& [offset, bytes] : segment.living) {
      gap(offset);
      at = offset + bytes;
    }
    gap(AlignUp(segment.end));
  }
}

uint64_t SegmentSet::Reclaim() {
  if (options_.read_only) return 0;
  struct Work {
    uint32_t number = 0;
    bool all = false;
    bool last = false;
    std::map<uint64_t, uint64_t> dead;
  };
  std::vector<Work> work;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [number, segment] : segments_) {
      const bool last = number == segments_.rbegin()->first;
      if (segment.dead.empty() && (segment.live > 0 || (last && segment.end == 0))) continue;
      const bool all = segment.live == 0 && !(active_ && number == active_number_);
      if (all || (options_.punch_holes && !segment.dead.empty())) {
        work.push_back({number, all, last, std::exchange(segment.dead, {})});
      }
    }
  }
  uint64_t freed = 0;
  for (Work& job : work) {
    uint64_t bytes = 0;
    for (const auto& [offset, size] : job.dead) bytes += size;
    bool done = false;
    std::error_code error;
    if (job.all && job.last) {
      std::filesystem::resize_file(PathOf(job.number), 0, error);  // keeps its number from reuse
      done = !error;
    } else if (job.all) {
      done = std::filesystem::remove(PathOf(job.number), error) || !error;
    } else if (auto file = SegmentFile::Open(PathOf(job.number), SegmentFile::Mode::kWrite);
               file.ok()) {
      done = std::all_of(job.dead.begin(), job.dead.end(), [&](const auto& piece) {
        return file->PunchHole(piece.first, piece.second);
      });
    }
    const std::lock_guard lock(mutex_);
    if (!done) {
      segments_[job.number].dead.merge(job.dead);
      continue;
    }
    if (job.all && job.last) segments_[job.number].end = 0;
    if (job.all && !job.last) segments_.erase(job.number);
    dead_ -= bytes;
    freed += bytes;
  }
  return freed;
}

std::optional<uint32_t> SegmentSet::Thin() const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, segment] : segments_) {
    const bool last = number == segments_.rbegin()->first;
    if (last || number == active_number_ || segment.live == 0) continue;
    if (static_cast<double>(segment.live) <
        kThinShare * static_cast<double>(options_.segment_bytes)) {
      return number;
    }
  }
  return std::nullopt;
}

bool SegmentSet::empty() const {
  const std::lock_guard lock(mutex_);
  return segments_.empty();
}

uint64_t SegmentSet::disk_bytes() const {
  const std::lock_guard lock(mutex_);
  return live_ + dead_;
}

uint64_t SegmentSet::dead_bytes() const {
  const std::lock_guard lock(mutex_);
  return dead_;
}

size_t SegmentSet::segments() const {
  const std::lock_guard lock(mutex_);
  return segments_.size();
}

uint64_t SegmentSet::written_bytes() const {
  const std::lock_guard lock(mutex_);
  return written_;
}

}  // namespace strata::kvstore
