#include "services/expertstore/io/read_queue.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"

namespace strata::expertstore {

using shm::Priority;

namespace {

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace

ReadQueue::ReadQueue(ReadEngine& engine, ModelFiles& files, Options options)
    : engine_(engine), files_(files), options_(options), flying_(engine.depth()) {
  for (uint32_t tag = 0; tag < engine.depth(); ++tag) free_tags_.push_back(tag);
}

void ReadQueue::Add(uint64_t load, Priority priority, std::span<const Extent> extents) {
  Load& entry = loads_[load];
  entry.priority = priority;
  entry.extents.assign(extents.begin(), extents.end());
  for (const Extent& extent : extents) {
    for (uint64_t at = 0; at < extent.needed; at += options_.slice_bytes) {
      Slice slice;
      slice.load = load;
      slice.file = extent.file;
      slice.offset = extent.offset + at;
      slice.bytes =
          static_cast<uint32_t>(std::min<uint64_t>(options_.slice_bytes, extent.bytes - at));
      slice.needed = static_cast<uint32_t>(std::min<uint64_t>(slice.bytes, extent.needed - at));
      slice.dest = extent.dest + at;
      slice.through_cache = extent.through_cache;
      QueueOf(priority).push_back(slice);
      ++entry.slices;
    }
  }
  EndIfDone(load);  // an expert of no bytes
}

void ReadQueue::Raise(uint64_t load, Priority priority) {
  const auto found = loads_.find(load);
  if (found == loads_.end() || found->second.priority <= priority) return;
  std::deque<Slice>& from = QueueOf(found->second.priority);
  found->second.priority = priority;
  const auto moved = std::stable_partition(
      from.begin(), from.end(), [load](const Slice& slice) { return slice.load != load; });
  std::move(moved, from.end(), std::back_inserter(QueueOf(priority)));
  from.erase(moved, from.end());
}

bool ReadQueue::Cancel(uint64_t load) {
  const auto found = loads_.find(load);
  if (found == loads_.end() || found->second.begun) return false;
  DropWaiting(load, found->second);
  loads_.erase(found);
  return true;
}

void ReadQueue::DropWaiting(uint64_t id, Load& load) {
  const auto dropped =
      std::erase_if(QueueOf(load.priority), [id](const Slice& slice) { return slice.load == id; });
  load.slices -= static_cast<uint32_t>(dropped);
}

bool ReadQueue::WantsMore(Priority priority) const {
  const uint32_t limit =
      priority == Priority::kBackground ? options_.background_depth : engine_.depth();
  uint64_t ahead = in_flight_;
  for (size_t p = 0; p <= static_cast<size_t>(priority); ++p) ahead += queues_[p].size();
  return ahead < limit;
}

uint32_t ReadQueue::waiting() const {
  size_t count = 0;
  for (const auto& queue : queues_) count += queue.size();
  return static_cast<uint32_t>(count);
}

void ReadQueue::Pump() {
  bool started = false;
  for (size_t p = 0; p < queues_.size(); ++p) {
    const bool background = p == static_cast<size_t>(Priority::kBackground);
    while (!queues_[p].empty() && !free_tags_.empty()) {
      if (background && background_in_flight_ >= options_.background_depth) break;
      Slice slice = queues_[p].front();
      queues_[p].pop_front();
      slice.background = background;
      Start(slice);
      started = true;
    }
  }
  if (started) engine_.Flush();
}

void ReadQueue::Start(const Slice& slice) {
  const uint32_t tag = free_tags_.back();
  free_tags_.pop_back();
  flying_[tag] = slice;
  flying_[tag].direct = !slice.through_cache && files_.direct(slice.file);
  if (in_flight_++ == 0) reading_since_ = NowNs();
  ++reads_;
  if (slice.background) ++background_in_flight_;
  loads_.find(slice.load)->second.begun = true;
  engine_.Queue({tag, slice.file, flying_[tag].direct, slice.offset, slice.bytes, slice.dest});
}

void ReadQueue::Reap(std::vector<Outcome>* outcomes) {
  std::array<ReadResult, 64> results;
  size_t count;
  do {
    count = engine_.Reap(results);
    for (size_t i = 0; i < count; ++i) {
      const auto tag = static_cast<uint32_t>(results[i].tag);
      const Slice slice = flying_[tag];
      free_tags_.push_back(tag);
      if (--in_flight_ == 0) reading_ns_ += NowNs() - reading_since_;
      if (slice.background) --background_in_flight_;
      Finish(slice, results[i].result);
    }
  } while (count == results.size());
  outcomes->insert(outcomes->end(), std::make_move_iterator(finished_.begin()),
                   std::make_move_iterator(finished_.end()));
  finished_.clear();
}

void ReadQueue::Finish(const Slice& slice, int64_t result) {
  Load& load = loads_.find(slice.load)->second;
  if (result > 0) bytes_read_ += static_cast<uint64_t>(result);
  if (!load.status.ok() || result >= int64_t{slice.needed}) {
    --load.slices;
    EndIfDone(slice.load);
    return;
  }
  Slice rest = slice;
  if (result == -EINVAL && slice.direct) {
    if (files_.direct(slice.file)) {
      LogWarning(
          "'", files_.path(slice.file),
          "' refuses to be read past the page cache (O_DIRECT); reading it through the cache");
      files_.StopDirect(slice.file);
    }
    Retry(rest);
    return;
  }
  // A short read is continued where it ended; past the page cache on a block border.
  const uint64_t step = result <= 0    ? 0
                        : slice.direct ? static_cast<uint64_t>(result) & ~(shm::kBlockAlign - 1)
                                       : static_cast<uint64_t>(result);
  if (step > 0) {
    rest.offset += step;
    rest.dest += step;
    rest.bytes -= static_cast<uint32_t>(step);
    rest.needed -= static_cast<uint32_t>(step);
    Retry(rest);
    return;
  }
  ++errors_;
  if (++rest.attempts < options_.attempts) {
    Retry(rest);
  } else {
    Fail(slice, ErrorOf(slice, result));
  }
}

// Ahead of its equals: the load has begun, and finishing it is what somebody waits for.
void ReadQueue::Retry(Slice slice) {
  QueueOf(loads_.find(slice.load)->second.priority).push_front(slice);
}

absl::Status ReadQueue::ErrorOf(const Slice& slice, int64_t result) const {
  const std::string where =
      absl::StrCat("'", files_.path(slice.file), "' at offset ", slice.offset, " (", slice.needed,
                   " bytes, ", options_.attempts, " attempts)");
  if (result >= 0) {
    return absl::DataLossError(absl::StrCat("the model file ends too early: ", where,
                                            "; it was cut or replaced after it was opened"));
  }
  return Annotate(ErrnoStatus(static_cast<int>(-result), where), "cannot read");
}

void ReadQueue::Fail(const Slice& slice, const absl::Status& status) {
  LogError(status.message());
  Load& load = loads_.find(slice.load)->second;
  load.status = status;
  --load.slices;
  DropWaiting(slice.load, load);
  EndIfDone(slice.load);
}

void ReadQueue::EndIfDone(uint64_t id) {
  const auto found = loads_.find(id);
  Load& load = found->second;
  if (load.slices != 0) return;
  for (const Extent& extent : load.extents) {
    if (extent.through_cache || !files_.direct(extent.file))
      files_.DropCache(extent.file, extent.offset, extent.bytes);
  }
  finished_.push_back({id, load.status});
  loads_.erase(found);
}

}  // namespace strata::expertstore
